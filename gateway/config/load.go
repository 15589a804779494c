package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"

	"tailgate/transports/all"
)

// Load reads a YAML file over the defaults. Unknown keys and wrong types are errors that name the file and the line. What is
// allowed is said by Validate, which the caller runs once environment and flags have had their say.
func Load(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("config: %w", err)
	}
	c, err := Parse(text)
	if err != nil {
		return Config{}, fmt.Errorf("config: %s: %w", path, err)
	}
	return c, nil
}

// Parse reads YAML over the defaults. A list replaces the default's whole list; a listener that is not named, or named without an
// address, has its default address.
func Parse(text []byte) (Config, error) {
	c := Default()
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, err
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return Config{}, errors.New("holds more than one YAML document, needed is one")
	}
	if c.Listeners == nil {
		c.Listeners = make(map[string]Listener)
	}
	for _, t := range all.All() {
		l := c.Listeners[t.Name]
		if l.Address == "" {
			l.Address = defaultAddress(t)
		}
		c.Listeners[t.Name] = l
	}
	return c, nil
}

// YAML is the configuration as a file that Parse reads back to the same. It holds no secrets: keys stand in it as hashes, certificates
// as file names.
func (c *Config) YAML() ([]byte, error) { return yaml.Marshal(c) }

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Load reads a YAML file over the given defaults. Unknown keys and wrong types are errors that name the file and the line. What is
// allowed is said by Validate, which the caller runs once environment and flags have had their say.
func Load(path string, defaults Config) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("config: %w", err)
	}
	c, err := Parse(text, defaults)
	if err != nil {
		return Config{}, fmt.Errorf("config: %s: %w", path, err)
	}
	return c, nil
}

// Parse reads YAML over the given defaults. A list replaces the default's whole list; a listener that is not named, or named without
// an address, has its default address, and one that the defaults do not have is an error.
func Parse(text []byte, defaults Config) (Config, error) {
	c := defaults
	c.Listeners = nil
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, err
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return Config{}, errors.New("holds more than one YAML document, needed is one")
	}
	listeners := maps.Clone(defaults.Listeners)
	for name, l := range c.Listeners {
		byDefault, ok := listeners[name]
		if !ok {
			return Config{}, &FieldError{
				Field:   "listeners." + name,
				Problem: "no such transport, allowed are " + strings.Join(slices.Sorted(maps.Keys(listeners)), ", "),
			}
		}
		if l.Address == "" {
			l.Address = byDefault.Address
		}
		listeners[name] = l
	}
	c.Listeners = listeners
	return c, nil
}

// YAML is the configuration as a file that Parse reads back to the same. It holds no secrets: keys stand in it as hashes, certificates
// as file names.
func (c *Config) YAML() ([]byte, error) { return yaml.Marshal(c) }

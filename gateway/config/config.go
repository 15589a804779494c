// Package config is what a gateway can be told, with every default, and the one place that says whether it makes sense.
//
// Values come from the built-in defaults, then a YAML file, then TAILGATE_ environment variables, then flags; the later one
// wins. The room must never know what the values are used for.
package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"tailgate/transports"
)

// Config is a whole configuration. The zero value is not usable, start from Default.
type Config struct {
	Journal     Journal             `yaml:"journal"`
	Listeners   map[string]Listener `yaml:"listeners"`   // by transport name; one that is not named has the default
	Connections Connections         `yaml:"connections"` // of each listener
	TLS         TLS                 `yaml:"tls"`
	// Insecure allows a listener beyond loopback without TLS, and without accounts: anybody who can connect then trades for "demo".
	Insecure    bool         `yaml:"insecure"`
	Accounts    []Account    `yaml:"accounts"`    // empty = the account "demo" for loopback clients without a key
	Instruments []Instrument `yaml:"instruments"` // at least 1, at most 1,000
	Limits      Limits       `yaml:"limits"`
	IDs         IDs          `yaml:"ids"`
	Book        Book         `yaml:"book"`
	Grace       Duration     `yaml:"grace"` // most time that a stop waits for what was accepted; 1s to 5m
}

// Journal says where and how commands are kept.
type Journal struct {
	Dir          string `yaml:"dir"`           // folder; created
	Sync         string `yaml:"sync"`          // off | os | always
	SegmentBytes int64  `yaml:"segment_bytes"` // preallocated size of one file; 0 = 64 MiB
}

// Listener is where one transport listens.
type Listener struct {
	Address  string `yaml:"address"`  // host:port, port 0 = a free one; "" = the default
	Disabled bool   `yaml:"disabled"` // true = this transport is not served
}

// Connections bound what peers can cost, for each listener.
type Connections struct {
	Max               int      `yaml:"max"`                // open connections; 1 to 1,000,000
	MaxRequestBytes   int      `yaml:"max_request_bytes"`  // encoded request in protobuf; 1 KiB to 1 MiB
	MaxStreams        int      `yaml:"max_streams"`        // requests in flight on one connection; 1 to 1,000,000
	Handshake         Duration `yaml:"handshake_timeout"`  // 100ms to 1m
	Request           Duration `yaml:"request_timeout"`    // first to last byte of one request; 100ms to 10m
	Idle              Duration `yaml:"idle_timeout"`       // without a request; 1s to 24h
	Write             Duration `yaml:"write_timeout"`      // for a peer that takes no byte of its answers; 100ms to 10m
	CongestionControl string   `yaml:"congestion_control"` // TCP_CONGESTION, e.g. cubic; "" = the system's
}

// TLS names PEM files; both or none.
type TLS struct {
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
}

// Account is who trades. Its keys are given as SHA-256 hashes.
type Account struct {
	Name      string   `yaml:"name"`       // 1 to 32 of [A-Za-z0-9_-]
	KeySHA256 []string `yaml:"key_sha256"` // 64 hexadecimal digits each
}

// Instrument is a listing. Units and bounds are those of proto orderentry.v1.Instrument.
type Instrument struct {
	Symbol         string `yaml:"symbol"`
	TickNanos      uint64 `yaml:"tick_nanos"`
	LotSize        uint64 `yaml:"lot_size"`
	Currency       string `yaml:"currency"`
	State          string `yaml:"state"` // open | halted | closed
	MinNotional    int64  `yaml:"min_notional"`
	MaxNotional    int64  `yaml:"max_notional"`
	ReferencePrice int64  `yaml:"reference_price"`
}

// Limits are checked before the book. In each, 0 = no bound but the contract's.
type Limits struct {
	MaxQuantity    uint64 `yaml:"max_quantity"`     // lots of one order
	MaxNotional    int64  `yaml:"max_notional"`     // ticks x lots of one order
	PriceCollarBps uint32 `yaml:"price_collar_bps"` // distance from the last trade or reference price, in 1/10,000 of it
}

// IDs sizes the table of client ids, which live until the end of the day.
type IDs struct {
	Max     int `yaml:"max"`     // orders, and as many requests; 1,000 to 2^30
	Reserve int `yaml:"reserve"` // orders whose memory is taken at the start; 0 to max
}

// Book sizes the matching engine.
type Book struct {
	MaxOrders int `yaml:"max_orders"` // resting orders over all instruments; 1,000 to 2^24
	MaxLevels int `yaml:"max_levels"` // price levels over all instruments and sides; 1,000 to max_orders
}

// Duration is a time.Duration that YAML writes as text ("1.5s").
type Duration time.Duration

// UnmarshalYAML implements yaml.Unmarshaler. Its error is of the kind that the decoder collects, so that it names the line and other
// mistakes are named beside it.
func (d *Duration) UnmarshalYAML(node *yaml.Node) error {
	v, err := time.ParseDuration(node.Value)
	if err != nil {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %q is no time such as 1.5s, 250ms or 10m", node.Line, node.Value)}}
	}
	*d = Duration(v)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Default is the configuration of a gateway that was told nothing: the given listeners, by transport name (only the caller knows which
// transports there are), the account demo, three instruments, a journal in ./data whose acks outlive the process.
func Default(listeners map[string]Listener) Config {
	return Config{
		Journal:   Journal{Dir: "data", Sync: "os"},
		Listeners: maps.Clone(listeners),
		Connections: Connections{
			Max: transports.DefaultMaxConnections, MaxRequestBytes: transports.DefaultMaxRequestBytes, MaxStreams: transports.DefaultMaxStreams,
			Handshake: Duration(transports.DefaultHandshakeTimeout), Request: Duration(transports.DefaultRequestTimeout),
			Idle: Duration(transports.DefaultIdleTimeout), Write: Duration(transports.DefaultWriteTimeout),
		},
		Instruments: []Instrument{
			{Symbol: "ACME", TickNanos: 10_000_000, LotSize: 1, Currency: "USD", State: "open", ReferencePrice: 10_000},
			{Symbol: "BOLT", TickNanos: 10_000_000, LotSize: 1, Currency: "EUR", State: "open", ReferencePrice: 5_000},
			{Symbol: "COIL", TickNanos: 1_000_000, LotSize: 100, Currency: "GBP", State: "open", ReferencePrice: 25_000},
		},
		Limits: Limits{MaxQuantity: 1_000_000, MaxNotional: 1_000_000_000_000, PriceCollarBps: 5_000},
		IDs:    IDs{Max: 4 << 20, Reserve: 1 << 16},
		Book:   Book{MaxOrders: 1 << 20, MaxLevels: 1 << 16},
		Grace:  Duration(10 * time.Second),
	}
}

// FieldError says which value is wrong and what is allowed.
type FieldError struct {
	Field   string // path in the YAML file, e.g. "limits.max_quantity"
	Problem string
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Validate returns all that is wrong, as joined *FieldErrors, or nil.
func (c *Config) Validate() error {
	v := validator{}
	v.journal(&c.Journal)
	v.listeners(c)
	v.connections(&c.Connections)
	if (c.TLS.Certificate == "") != (c.TLS.Key == "") {
		v.fail("tls", "needs both certificate and key, or neither")
	}
	v.accounts(c.Accounts)
	v.instruments(c.Instruments)
	if c.Limits.MaxNotional < 0 {
		v.fail("limits.max_notional", "is %d, allowed are 0 (no bound) and more", c.Limits.MaxNotional)
	}
	if c.Limits.PriceCollarBps > 1_000_000 {
		v.fail("limits.price_collar_bps", "is %d, allowed are 0 (no collar) to 1000000", c.Limits.PriceCollarBps)
	}
	v.between("ids.max", int64(c.IDs.Max), 1_000, 1<<30)
	v.between("ids.reserve", int64(c.IDs.Reserve), 0, int64(c.IDs.Max))
	v.between("book.max_orders", int64(c.Book.MaxOrders), 1_000, 1<<24)
	v.between("book.max_levels", int64(c.Book.MaxLevels), 1_000, int64(c.Book.MaxOrders))
	v.duration("grace", c.Grace, time.Second, 5*time.Minute)
	return errors.Join(v.problems...)
}

// validator collects what is wrong.
type validator struct{ problems []error }

func (v *validator) fail(field, format string, args ...any) {
	v.problems = append(v.problems, &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (v *validator) between(field string, value, low, high int64) {
	if value < low || value > high {
		v.fail(field, "is %d, allowed are %d to %d", value, low, high)
	}
}

func (v *validator) duration(field string, value Duration, low, high time.Duration) {
	if d := time.Duration(value); d < low || d > high {
		v.fail(field, "is %s, allowed are %s to %s", d, low, high)
	}
}

func (v *validator) journal(j *Journal) {
	if j.Dir == "" {
		v.fail("journal.dir", "is empty: name a folder")
	}
	if !slices.Contains([]string{"off", "os", "always"}, j.Sync) {
		v.fail("journal.sync", "is %q, allowed are off, os, always", j.Sync)
	}
	if j.SegmentBytes != 0 {
		v.between("journal.segment_bytes", j.SegmentBytes, 128<<10, 1<<30)
	}
}

func (v *validator) listeners(c *Config) {
	addresses := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(c.Listeners)) {
		l := c.Listeners[name]
		field := "listeners." + name
		if l.Disabled {
			continue
		}
		host, port, err := net.SplitHostPort(l.Address)
		if err != nil {
			v.fail(field+".address", "is %q, needed is host:port: %v", l.Address, err)
			continue
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil {
			v.fail(field+".address", "is %q, the port must be a number from 0 (any free one) to 65535", l.Address)
		} else if other, taken := addresses[l.Address]; taken && n != 0 {
			v.fail(field+".address", "%s is the address of listener %s already", l.Address, other)
		}
		addresses[l.Address] = name
		if !c.Insecure && !isLoopback(host) {
			if c.TLS.Certificate == "" {
				v.fail(field+".address", "%q is beyond loopback and there is no TLS: set tls, or insecure: true to send orders and keys in plain text", l.Address)
			}
			if len(c.Accounts) == 0 {
				v.fail(field+".address", "%q is beyond loopback and there are no keys: set accounts, or insecure: true", l.Address)
			}
		}
	}
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func (v *validator) connections(c *Connections) {
	v.between("connections.max", int64(c.Max), 1, 1_000_000)
	v.between("connections.max_request_bytes", int64(c.MaxRequestBytes), 1<<10, 1<<20)
	v.between("connections.max_streams", int64(c.MaxStreams), 1, 1_000_000)
	v.duration("connections.handshake_timeout", c.Handshake, 100*time.Millisecond, time.Minute)
	v.duration("connections.request_timeout", c.Request, 100*time.Millisecond, 10*time.Minute)
	v.duration("connections.idle_timeout", c.Idle, time.Second, 24*time.Hour)
	v.duration("connections.write_timeout", c.Write, 100*time.Millisecond, 10*time.Minute)
}

func (v *validator) accounts(accounts []Account) {
	if len(accounts) > 10_000 {
		v.fail("accounts", "has %d entries, at most 10000 are allowed", len(accounts))
	}
	names, keys := make(map[string]bool), make(map[string]bool)
	for i, a := range accounts {
		field := fmt.Sprintf("accounts[%d]", i)
		if !matches(a.Name, 32, "_-", true) {
			v.fail(field+".name", "is %q, needed are 1 to 32 of [A-Za-z0-9_-]", a.Name)
		}
		if names[a.Name] {
			v.fail(field+".name", "%q stands twice", a.Name)
		}
		names[a.Name] = true
		if len(a.KeySHA256) == 0 {
			v.fail(field+".key_sha256", "is empty: an account without a key can never be used")
		}
		for k, hash := range a.KeySHA256 {
			if len(hash) != 64 || strings.Trim(hash, "0123456789abcdef") != "" {
				v.fail(fmt.Sprintf("%s.key_sha256[%d]", field, k), "needed are 64 lower-case hexadecimal digits (printf %%s KEY | sha256sum)")
			} else if keys[hash] {
				v.fail(fmt.Sprintf("%s.key_sha256[%d]", field, k), "this key belongs to another account or stands twice")
			}
			keys[hash] = true
		}
	}
}

func (v *validator) instruments(instruments []Instrument) {
	v.between("instruments", int64(len(instruments)), 1, 1_000)
	seen := make(map[string]bool)
	for i, d := range instruments {
		field := fmt.Sprintf("instruments[%d]", i)
		if !matches(d.Symbol, 16, "._-", false) {
			v.fail(field+".symbol", "is %q, needed are 1 to 16 of [A-Z0-9._-]", d.Symbol)
		}
		if seen[d.Symbol] {
			v.fail(field+".symbol", "%q stands twice", d.Symbol)
		}
		seen[d.Symbol] = true
		if d.TickNanos == 0 {
			v.fail(field+".tick_nanos", "is 0: a tick needs a value, in 10^-9 of the currency")
		}
		if d.LotSize == 0 {
			v.fail(field+".lot_size", "is 0: a lot needs at least one unit")
		}
		if len(d.Currency) != 3 || strings.Trim(d.Currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			v.fail(field+".currency", "is %q, needed is an ISO 4217 code such as USD", d.Currency)
		}
		if !slices.Contains([]string{"open", "halted", "closed"}, d.State) {
			v.fail(field+".state", "is %q, allowed are open, halted, closed", d.State)
		}
		if d.MinNotional < 0 || d.MaxNotional < 0 || d.MaxNotional > 0 && d.MinNotional > d.MaxNotional {
			v.fail(field, "min_notional %d and max_notional %d: needed is 0 <= min <= max (max 0 = no bound)", d.MinNotional, d.MaxNotional)
		}
		if d.ReferencePrice == math.MinInt64 {
			v.fail(field+".reference_price", "is below the lowest price")
		}
	}
}

// matches tells names of 1 to most letters, digits and extra characters; lower says whether small letters count.
func matches(s string, most int, extra string, lower bool) bool {
	if s == "" || len(s) > most {
		return false
	}
	for _, c := range s {
		ok := 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || lower && 'a' <= c && c <= 'z' || strings.ContainsRune(extra, c)
		if !ok {
			return false
		}
	}
	return true
}

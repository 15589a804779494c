// Package config is what a gateway can be told, with every default, and the one place that says whether it makes sense.
//
// Values come from the built-in defaults, then a YAML file, then TAILGATE_ environment variables, then flags; the later one
// wins. The room must never know what the values are used for.
package config

import (
	"fmt"
	"maps"
	"time"

	"go.yaml.in/yaml/v3"

	"tailgate/gateway/feed"
	"tailgate/gateway/orders"
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
	Admin       Admin        `yaml:"admin"`
	Firms       []Firm       `yaml:"firms"`       // that have limits of their own; at most 10,000
	Accounts    []Account    `yaml:"accounts"`    // empty = the account "demo" for loopback clients without a key; at most 10,000
	DropCopies  []DropCopy   `yaml:"drop_copies"` // at most 1,000
	Instruments []Instrument `yaml:"instruments"` // at least 1, at most 1,000
	Limits      Limits       `yaml:"limits"`      // of each account that has none of its own
	Throttle    Throttle     `yaml:"throttle"`
	IDs         IDs          `yaml:"ids"`
	Events      Events       `yaml:"events"`
	Sessions    Sessions     `yaml:"sessions"`
	Book        Book         `yaml:"book"`
	Grace       Duration     `yaml:"grace"` // most time that a stop waits for what was accepted; 1s to 5m
}

// Journal says where and how commands are kept.
type Journal struct {
	Dir          string `yaml:"dir"`           // folder; created
	Sync         string `yaml:"sync"`          // off | os | always
	SegmentBytes int64  `yaml:"segment_bytes"` // preallocated size of one file; 0 = 64 MiB
	// SnapshotEvery is after how many commands a snapshot is made beside the running gateway; 0 = only at the end of the day and at a
	// stop. 0, or 10,000 to 2^40.
	SnapshotEvery uint64 `yaml:"snapshot_every"`
	// KeepSegments keeps segments that a snapshot has made superfluous, for auditors.
	KeepSegments bool `yaml:"keep_segments"`
}

// Listener is where one transport listens.
type Listener struct {
	Address  string `yaml:"address"`  // host:port, port 0 = a free one; "" = the default
	Disabled bool   `yaml:"disabled"` // true = this transport is not served
	Engine   string `yaml:"engine"`   // the I/O engine, one of those that the transport has; "" = its first
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

// Admin is the listener of AdminService and who may use it.
type Admin struct {
	Listener `yaml:",inline"`
	Keys     []Key `yaml:"keys"` // none, and no accounts = loopback clients need no key; none beside accounts = nobody is let in
}

// Key is a key that belongs to no account. It is given as a SHA-256 hash.
type Key struct {
	Name      string `yaml:"name"`       // whose it is, for the log; 1 to 32 of [A-Za-z0-9_-]
	KeySHA256 string `yaml:"key_sha256"` // 64 hexadecimal digits
}

// Firm is a group of accounts with limits of its own.
type Firm struct {
	Name   string `yaml:"name"`   // 1 to 32 of [A-Za-z0-9_-]
	Limits Limits `yaml:"limits"` // over all its accounts; max_quantity, max_notional and price_collar_bps are of one order
}

// Account is who trades. Its keys are given as SHA-256 hashes.
type Account struct {
	Name      string   `yaml:"name"`       // 1 to 32 of [A-Za-z0-9_-]
	Firm      string   `yaml:"firm"`       // whose it is; empty = a firm of its own that has its name
	Group     string   `yaml:"group"`      // orders of one group are kept from trading with each other where they ask for it; empty = the firm's name
	KeySHA256 []string `yaml:"key_sha256"` // 64 hexadecimal digits each; they trade
	Limits    *Limits  `yaml:"limits"`     // nil = the configuration's limits
}

// DropCopy is a reader of the events of accounts, who cannot trade.
type DropCopy struct {
	Name      string   `yaml:"name"`       // for the log; 1 to 32 of [A-Za-z0-9_-]
	KeySHA256 []string `yaml:"key_sha256"` // 64 hexadecimal digits each
	Accounts  []string `yaml:"accounts"`   // whose events it reads, at least 1
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

// Limits are checked before the book. In each, 0 = no bound but the contract's. Units and meaning are those of proto
// orderentry.v1.Limits, bounds those of orders.Limits.
type Limits struct {
	MaxQuantity       uint64   `yaml:"max_quantity"`       // lots of one order
	MaxNotional       int64    `yaml:"max_notional"`       // ticks x lots of one order
	PriceCollarBps    uint32   `yaml:"price_collar_bps"`   // distance from the last trade or reference price, in 1/10,000 of it
	MaxOpenOrders     uint32   `yaml:"max_open_orders"`    // orders
	MaxOpenNotional   int64    `yaml:"max_open_notional"`  // ticks x lots of all open orders
	MaxPosition       uint64   `yaml:"max_position"`       // lots either way in each instrument, open orders counted as filled
	RestrictedSymbols []string `yaml:"restricted_symbols"` // that may not be traded; at most 1,000
	MaxOrderRate      uint32   `yaml:"max_order_rate"`     // orders and replaces in a second
}

// Orders are the limits as the orders' state keeps them, and all that is wrong with them.
func (l *Limits) Orders() (limits orders.Limits, problems []*orders.LimitError) {
	limits = orders.Limits{
		MaxQuantity: l.MaxQuantity, MaxNotional: l.MaxNotional, PriceCollarBps: l.PriceCollarBps, MaxOpenOrders: l.MaxOpenOrders,
		MaxOpenNotional: l.MaxOpenNotional, MaxPosition: l.MaxPosition, MaxOrderRate: l.MaxOrderRate,
	}
	problems = limits.Restrict(l.RestrictedSymbols)
	return limits, append(problems, limits.Problems()...)
}

// Throttle is what happens beyond max_order_rate, after the refusals with a retry time.
type Throttle struct {
	Penalty Duration `yaml:"penalty"` // for how long an account is shut out whose session was ended for not heeding the refusals; 100ms to 1h
}

// Events bounds the day's numbered events and their readers.
type Events struct {
	Max         int `yaml:"max"`           // events of a day over all accounts; 10,000 to 2^30
	Readers     int `yaml:"readers"`       // streams at a time over all accounts; 1 to 100,000
	CatchUpRate int `yaml:"catch_up_rate"` // events per second that readers far behind get, all of them together; 1,000 to 100,000,000
	// ReadersPerAccount bounds the streams at a time of the events of one account; 1 to 100,000.
	ReadersPerAccount int `yaml:"readers_per_account"`
}

// Sessions bounds the named sessions.
type Sessions struct {
	Max int `yaml:"max"` // names over all accounts until the end of the day; 1 to 2^20
	// MaxPerAccount bounds those of one account, so that none can take all; one more takes the place of a session of the account that is
	// logged out and has no open orders, or is refused; 1 to 2^20.
	MaxPerAccount int `yaml:"max_per_account"`
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
		Journal:   Journal{Dir: "data", Sync: "os", SnapshotEvery: 10_000_000},
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
		Admin:    Admin{Listener: Listener{Address: "127.0.0.1:9090"}},
		Limits:   Limits{MaxQuantity: 1_000_000, MaxNotional: 1_000_000_000_000, PriceCollarBps: 5_000},
		Throttle: Throttle{Penalty: Duration(time.Second)},
		IDs:      IDs{Max: 4 << 20, Reserve: 1 << 16},
		Events:   Events{Max: orders.DefaultMaxEvents, Readers: feed.DefaultMaxReaders, ReadersPerAccount: feed.DefaultMaxReadersOfAccount, CatchUpRate: feed.DefaultCatchUpRate},
		Sessions: Sessions{Max: orders.DefaultMaxSessions, MaxPerAccount: orders.DefaultMaxSessionsOfAccount},
		Book:     Book{MaxOrders: 1 << 20, MaxLevels: 1 << 16},
		Grace:    Duration(10 * time.Second),
	}
}

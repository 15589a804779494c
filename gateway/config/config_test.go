package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"tailgate/gateway/orders"
)

// byDefault are the defaults that the tests start from.
func byDefault() Config {
	return Default(map[string]Listener{"tcp": {Address: "127.0.0.1:7001"}, "grpc": {Address: "127.0.0.1:50051"}})
}

func TestDefaultIsValidAndComesBackFromYAML(t *testing.T) {
	c := byDefault()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse(text, byDefault())
	if err != nil {
		t.Fatal(err)
	}
	again, err := back.YAML() // in which an empty list and no list are the same
	if err != nil || string(again) != string(text) {
		t.Errorf("%v, came back as\n%s\nwas\n%s", err, again, text)
	}
}

func TestWrongFilesNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"limits:\n  max_quantty: 5\n":    "line 2: field max_quantty not found",
		"ids: {max: x}\ngrace: soon\n":   "line 2: \"soon\" is no time",
		"grace: 5\n":                     "line 1: \"5\" is no time",
		"ids:\n  max: many\n":            "line 2: cannot unmarshal",
		"insecure: true\n---\ngrace: 1s": "more than one YAML document",
		"ids: [":                         "yaml:",
		"listeners: {pigeon: {}}":        "listeners.pigeon: no such transport, allowed are grpc, tcp",
	} {
		if _, err := Parse([]byte(text), byDefault()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want one with %q", text, err, want)
		}
	}
	if _, err := Load("no-such-file.yaml", byDefault()); err == nil || !strings.Contains(err.Error(), "no-such-file.yaml") {
		t.Errorf("missing file: %v", err)
	}
}

func TestListenersKeepTheirDefaults(t *testing.T) {
	c, err := Parse([]byte("listeners: {tcp: {disabled: true}}"), byDefault())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Listener{"tcp": {Address: "127.0.0.1:7001", Disabled: true}, "grpc": {Address: "127.0.0.1:50051"}}
	if !reflect.DeepEqual(c.Listeners, want) {
		t.Errorf("got %v, want %v", c.Listeners, want)
	}
}

func TestEmptyFileIsTheDefault(t *testing.T) {
	c, err := Parse(nil, byDefault())
	if err != nil || !reflect.DeepEqual(c, byDefault()) {
		t.Errorf("%v, %+v", err, c)
	}
}

func TestValidateNamesFieldAndWhatIsAllowed(t *testing.T) {
	for i, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Journal.Sync = "sometimes" }, `journal.sync: is "sometimes", allowed are off, os, always`},
		{func(c *Config) { c.Journal.Dir = "" }, "journal.dir: is empty"},
		{func(c *Config) { c.Journal.SegmentBytes = 5 }, "journal.segment_bytes: is 5, allowed are 131072 to"},
		{func(c *Config) { c.Listeners["grpc"] = Listener{Address: "here"} }, "listeners.grpc.address"},
		{func(c *Config) { c.Listeners["grpc"] = Listener{Address: "127.0.0.1:70000"} }, "from 0 (any free one) to 65535"},
		{func(c *Config) { c.Listeners["grpc"] = c.Listeners["tcp"] }, "is the address of listener grpc already"},
		{func(c *Config) { c.Listeners["grpc"] = Listener{Address: "0.0.0.0:1"} }, "there is no TLS"},
		{func(c *Config) { c.Listeners["grpc"] = Listener{Address: ":1"} }, "there are no keys"},
		{func(c *Config) { c.Connections.Max = 0 }, "connections.max: is 0, allowed are 1 to"},
		{func(c *Config) { c.Connections.Idle = 5 }, "connections.idle_timeout: is 5ns, allowed are 1s to 24h"},
		{func(c *Config) { c.TLS.Key = "k.pem" }, "tls: needs both"},
		{func(c *Config) { c.Accounts = []Account{{Name: "a b", KeySHA256: []string{strings.Repeat("0", 64)}}} }, "accounts[0].name"},
		{func(c *Config) { c.Accounts = []Account{{Name: "a"}} }, "accounts[0].key_sha256: is empty"},
		{func(c *Config) { c.Accounts = []Account{{Name: "a", KeySHA256: []string{"clear-text"}}} }, "needed are 64"},
		{func(c *Config) {
			hash := strings.Repeat("0", 64)
			c.Accounts = []Account{{Name: "a", KeySHA256: []string{hash}}, {Name: "b", KeySHA256: []string{hash}}}
		}, "belongs to another holder"},
		{func(c *Config) {
			c.Accounts = []Account{{Name: "a", Firm: "no such", KeySHA256: []string{strings.Repeat("0", 64)}}}
		}, "accounts[0].firm"},
		{func(c *Config) { c.Firms = []Firm{{Name: "f", Limits: Limits{MaxOpenNotional: -1}}} }, "firms[0].limits.max_open_notional: is -1"},
		{func(c *Config) { c.Limits.RestrictedSymbols = []string{"lower"} }, "limits.restricted_symbols[0]"},
		{func(c *Config) {
			c.Accounts = []Account{{Name: "a", KeySHA256: []string{strings.Repeat("0", 64)}}}
			c.DropCopies = []DropCopy{{Name: "d", KeySHA256: []string{strings.Repeat("1", 64)}, Accounts: []string{"b"}}}
		}, `drop_copies[0].accounts: there is no account "b"`},
		{func(c *Config) { c.DropCopies = []DropCopy{{Name: "d", KeySHA256: []string{strings.Repeat("1", 64)}}} }, "drop_copies: need accounts"},
		{func(c *Config) { c.Admin.Address = "0.0.0.0:9090" }, "admin.address: \"0.0.0.0:9090\" is beyond loopback and there are no keys: set admin.keys"},
		{func(c *Config) { c.Admin.Address = c.Listeners["tcp"].Address }, "admin.address: 127.0.0.1:7001 is the address of listener tcp already"},
		{func(c *Config) { c.Admin.Keys = []Key{{Name: "ops", KeySHA256: "secret"}} }, "admin.keys[0].key_sha256[0]: needed are 64"},
		{func(c *Config) { c.Journal.SnapshotEvery = 5 }, "journal.snapshot_every: is 5"},
		{func(c *Config) { c.Events.Max = 1 }, "events.max: is 1, allowed are 10000 to"},
		{func(c *Config) { c.Events.Max = 1 << 31 }, "events.max: is 2147483648, allowed are 10000 to 1073741824"},
		{func(c *Config) { c.IDs.Max = 1<<30 + 1 }, "ids.max: is 1073741825"},
		{func(c *Config) { c.Book.MaxOrders = 1<<24 + 1 }, "book.max_orders: is 16777217"},
		{func(c *Config) { c.Sessions.Max = 0 }, "sessions.max"},
		{func(c *Config) { c.Sessions.Max = 1<<20 + 1 }, "sessions.max: is 1048577, allowed are 1 to 1048576"},
		{func(c *Config) { c.Sessions.MaxPerAccount = 0 }, "sessions.max_per_account: is 0, allowed are 1 to 1048576"},
		{func(c *Config) { c.Events.ReadersPerAccount = 0 }, "events.readers_per_account: is 0, allowed are 1 to 100000"},
		{func(c *Config) { c.Limits.MaxQuantity = 2_000_000_000_000 }, "limits.max_quantity: is 2000000000000, allowed are 0 (no bound) to 1099511627775"},
		{func(c *Config) { c.Limits.MaxPosition = 1 << 63 }, "limits.max_position: is 9223372036854775808, allowed are"},
		{func(c *Config) {
			c.Accounts = []Account{{Name: "a", KeySHA256: []string{strings.Repeat("0", 64)}, Limits: &Limits{MaxNotional: -2}}}
		}, "accounts[0].limits.max_notional: is -2, allowed are"},
		{func(c *Config) {
			c.Accounts = []Account{{Name: "alone", KeySHA256: []string{strings.Repeat("0", 64)}}}
			for i := range orders.MaxFirms {
				c.Firms = append(c.Firms, Firm{Name: fmt.Sprint("f", i)})
			}
		}, "firms: these and those that accounts name, or are by themselves, are 10001; at most 10000"},
		{func(c *Config) { c.Throttle.Penalty = 0 }, "throttle.penalty"},
		{func(c *Config) { c.Instruments = nil }, "instruments: is 0, allowed are 1 to 1000"},
		{func(c *Config) { c.Instruments[1].Symbol = c.Instruments[0].Symbol }, "stands twice"},
		{func(c *Config) { c.Instruments[0].State = "asleep" }, "allowed are open, halted, closed"},
		{func(c *Config) { c.Limits.PriceCollarBps = 2_000_000 }, "limits.price_collar_bps"},
		{func(c *Config) { c.IDs.Reserve = c.IDs.Max + 1 }, "ids.reserve"},
		{func(c *Config) { c.Book.MaxLevels = c.Book.MaxOrders + 1 }, "book.max_levels"},
		{func(c *Config) { c.Grace = 0 }, "grace: is 0s, allowed are 1s to 5m0s"},
	} {
		conf := byDefault()
		c.change(&conf)
		if err := conf.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("case %d: got %v, want one with %q", i, err, c.want)
		}
	}
}

func TestValidateSaysEverythingAtOnce(t *testing.T) {
	c := byDefault()
	c.Journal.Sync, c.Grace = "x", 0
	if err := c.Validate(); err == nil || strings.Count(fmt.Sprint(err), "\n") != 1 {
		t.Errorf("two mistakes gave %v", err)
	}
}

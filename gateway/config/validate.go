package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"tailgate/gateway/orders"
	"tailgate/matching"
)

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
	v.who(c)
	v.instruments(c.Instruments)
	v.limits("limits", &c.Limits)
	v.duration("throttle.penalty", c.Throttle.Penalty, 100*time.Millisecond, time.Hour)
	v.between("ids.max", int64(c.IDs.Max), 1_000, orders.MaxIDsCeiling)
	v.between("ids.reserve", int64(c.IDs.Reserve), 0, int64(c.IDs.Max))
	v.between("events.max", int64(c.Events.Max), 10_000, orders.MaxEventsCeiling)
	v.between("events.readers", int64(c.Events.Readers), 1, 100_000)
	v.between("events.readers_per_account", int64(c.Events.ReadersPerAccount), 1, 100_000)
	v.between("events.catch_up_rate", int64(c.Events.CatchUpRate), 1_000, 100_000_000)
	v.between("sessions.max", int64(c.Sessions.Max), 1, orders.MaxSessionsCeiling)
	v.between("sessions.max_per_account", int64(c.Sessions.MaxPerAccount), 1, orders.MaxSessionsCeiling)
	v.between("book.max_orders", int64(c.Book.MaxOrders), 1_000, matching.MaxOrdersCeiling)
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
	if n := j.SnapshotEvery; n != 0 && (n < 10_000 || n > 1<<40) {
		v.fail("journal.snapshot_every", "is %d, allowed are 0 (none beside the running gateway), or 10000 to %d commands", n, int64(1)<<40)
	}
}

func (v *validator) listeners(c *Config) {
	addresses := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(c.Listeners)) {
		v.listener(c, "listeners."+name, name, c.Listeners[name], addresses, len(c.Accounts) > 0, "accounts")
	}
	v.listener(c, "admin", "admin", c.Admin.Listener, addresses, len(c.Admin.Keys) > 0, "admin.keys")
}

func (v *validator) listener(c *Config, field, name string, l Listener, addresses map[string]string, keys bool, keysField string) {
	if l.Disabled {
		return
	}
	host, port, err := net.SplitHostPort(l.Address)
	if err != nil {
		v.fail(field+".address", "is %q, needed is host:port: %v", l.Address, err)
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		v.fail(field+".address", "is %q, the port must be a number from 0 (any free one) to 65535", l.Address)
	} else if other, taken := addresses[l.Address]; taken && n != 0 {
		v.fail(field+".address", "%s is the address of listener %s already", l.Address, other)
	}
	addresses[l.Address] = name
	if c.Insecure || isLoopback(host) {
		return
	}
	if c.TLS.Certificate == "" {
		v.fail(field+".address", "%q is beyond loopback and there is no TLS: set tls, or insecure: true to send orders and keys in plain text", l.Address)
	}
	if !keys {
		v.fail(field+".address", "%q is beyond loopback and there are no keys: set %s, or insecure: true", l.Address, keysField)
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

// who checks everybody that the configuration names: accounts, firms and the holders of other keys.
func (v *validator) who(c *Config) {
	keys := make(map[string]bool)
	accounts := v.accounts(c.Accounts, keys)
	firms := make(map[string]bool)
	for i := range c.Firms {
		field := fmt.Sprintf("firms[%d]", i)
		v.name(field, c.Firms[i].Name, firms)
		v.limits(field+".limits", &c.Firms[i].Limits)
	}
	for i := range c.Accounts {
		firms[cmp.Or(c.Accounts[i].Firm, c.Accounts[i].Name)] = true
	}
	if len(firms) > orders.MaxFirms {
		v.fail("firms", "these and those that accounts name, or are by themselves, are %d; at most %d are allowed", len(firms), orders.MaxFirms)
	}
	v.most("drop_copies", len(c.DropCopies), 1_000)
	readers := make(map[string]bool)
	for i, d := range c.DropCopies {
		field := fmt.Sprintf("drop_copies[%d]", i)
		v.name(field, d.Name, readers)
		v.keys(field+".key_sha256", d.KeySHA256, keys)
		if len(d.Accounts) == 0 {
			v.fail(field+".accounts", "is empty: a drop copy of no account")
		}
		for _, name := range d.Accounts {
			if !accounts[name] {
				v.fail(field+".accounts", "there is no account %q", name)
			}
		}
	}
	if len(c.DropCopies) > 0 && len(c.Accounts) == 0 {
		v.fail("drop_copies", "need accounts: without them every client trades for demo and reads its events")
	}
	v.most("admin.keys", len(c.Admin.Keys), 1_000)
	admins := make(map[string]bool)
	for i, k := range c.Admin.Keys {
		field := fmt.Sprintf("admin.keys[%d]", i)
		v.name(field, k.Name, admins)
		v.keys(field+".key_sha256", []string{k.KeySHA256}, keys)
	}
}

func (v *validator) most(field string, n, most int) {
	if n > most {
		v.fail(field, "has %d entries, at most %d are allowed", n, most)
	}
}

// name checks a name and that it stands once.
func (v *validator) name(field, name string, seen map[string]bool) {
	if !isName(name) {
		v.fail(field+".name", "is %q, needed are 1 to 32 of [A-Za-z0-9_-]", name)
	}
	if seen[name] {
		v.fail(field+".name", "%q stands twice", name)
	}
	seen[name] = true
}

// keys checks hashes of keys, and that each belongs to one holder.
func (v *validator) keys(field string, hashes []string, seen map[string]bool) {
	if len(hashes) == 0 {
		v.fail(field, "is empty: what has no key can never be used")
	}
	for k, hash := range hashes {
		if len(hash) != 64 || strings.Trim(hash, "0123456789abcdef") != "" {
			v.fail(fmt.Sprintf("%s[%d]", field, k), "needed are 64 lower-case hexadecimal digits (printf %%s KEY | sha256sum)")
		} else if seen[hash] {
			v.fail(fmt.Sprintf("%s[%d]", field, k), "this key belongs to another holder or stands twice")
		}
		seen[hash] = true
	}
}

// accounts checks the accounts and returns their names.
func (v *validator) accounts(accounts []Account, keys map[string]bool) map[string]bool {
	v.most("accounts", len(accounts), orders.MaxAccounts)
	names := make(map[string]bool)
	for i, a := range accounts {
		field := fmt.Sprintf("accounts[%d]", i)
		v.name(field, a.Name, names)
		v.keys(field+".key_sha256", a.KeySHA256, keys)
		for what, name := range map[string]string{"firm": a.Firm, "group": a.Group} {
			if name != "" && !isName(name) {
				v.fail(field+"."+what, "is %q, needed are 1 to 32 of [A-Za-z0-9_-], or nothing", name)
			}
		}
		if a.Limits != nil {
			v.limits(field+".limits", a.Limits)
		}
	}
	return names
}

// limits leaves the bounds to the room that keeps limits.
func (v *validator) limits(field string, l *Limits) {
	_, problems := l.Orders()
	for _, p := range problems {
		v.fail(field+"."+p.Field, "%s", p.Problem)
	}
}

func (v *validator) instruments(instruments []Instrument) {
	v.between("instruments", int64(len(instruments)), 1, orders.MaxInstruments)
	seen := make(map[string]bool)
	for i, d := range instruments {
		field := fmt.Sprintf("instruments[%d]", i)
		if _, ok := orders.ParseSymbol(d.Symbol); !ok {
			v.fail(field+".symbol", "is %q, needed are 1 to %d of [A-Z0-9._-]", d.Symbol, orders.MaxSymbolBytes)
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

func isName(s string) bool {
	_, ok := orders.ParseID(s)
	return ok
}

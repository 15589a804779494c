package entry

import (
	"context"
	"net"
	"testing"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

var (
	loopback  = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	loopback6 = &net.TCPAddr{IP: net.IPv6loopback, Port: 1}
	outside   = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}
)

const (
	in      = pb.Reason_REASON_UNSPECIFIED
	unknown = pb.Reason_REASON_UNAUTHENTICATED
	denied  = pb.Reason_REASON_PERMISSION_DENIED
)

func reasonOf(err error) pb.Reason {
	if err == nil {
		return in
	}
	return transports.AsFault(err).Reason
}

func TestWhoIsLetIn(t *testing.T) {
	trader := map[string]Key{"alpha-key": {Role: Trade, Account: 1}}
	roles := map[string]Key{"alpha-key": {Role: Trade, Account: 1}, "copy-key": {Role: DropCopy, Accounts: []uint32{0}}, "admin-key": {Role: Admin}}
	noTrader := map[string]Key{"copy-key": {Role: DropCopy, Accounts: []uint32{0}}, "admin-key": {Role: Admin}}
	for _, c := range []struct {
		what         string
		keys         map[string]Key
		anybody      bool
		peer         transports.Peer
		trade, admin pb.Reason
	}{
		{"no keys, loopback", nil, false, transports.Peer{Remote: loopback}, in, in},
		{"no keys, loopback over IPv6", nil, false, transports.Peer{Remote: loopback6}, in, in},
		{"no keys, in memory", nil, false, transports.Peer{}, in, in},
		{"no keys, from outside", nil, false, transports.Peer{Remote: outside}, unknown, unknown},
		{"no keys, from outside, where anybody may", nil, true, transports.Peer{Remote: outside}, in, in},
		{"no keys, loopback with a key", nil, false, transports.Peer{Remote: loopback, Key: "alpha-key"}, unknown, unknown},
		{"keys, none sent", trader, false, transports.Peer{Remote: loopback}, unknown, unknown},
		{"keys, none sent, where anybody may", trader, true, transports.Peer{Remote: loopback}, unknown, unknown},
		{"keys, a wrong one", trader, false, transports.Peer{Remote: loopback, Key: "alpha-kex"}, unknown, unknown},
		{"keys, the right one from outside", trader, false, transports.Peer{Remote: outside, Key: "alpha-key"}, in, denied},
		{"a drop copy's key", roles, false, transports.Peer{Remote: outside, Key: "copy-key"}, in, denied},
		{"an administrator's key", roles, false, transports.Peer{Remote: outside, Key: "admin-key"}, denied, in},
		{"no key that trades, loopback", noTrader, false, transports.Peer{Remote: loopback}, in, unknown},
		{"no key that trades, from outside", noTrader, false, transports.Peer{Remote: outside}, unknown, unknown},
		{"no key that trades, an administrator's key", noTrader, false, transports.Peer{Remote: outside, Key: "admin-key"}, denied, in},
	} {
		g, _ := newGateway(t, c.keys, 10)
		if err := g.SetKeys(hashed(c.keys), c.anybody); err != nil {
			t.Fatal(err)
		}
		_, err := g.Open(context.Background(), c.peer)
		if reasonOf(err) != c.trade {
			t.Errorf("%s: order entry says %v, want %s", c.what, err, c.trade)
		}
		if _, err := g.AuthorizeAdmin(c.peer.Key, c.peer.Remote); reasonOf(err) != c.admin {
			t.Errorf("%s: administration says %v, want %s", c.what, err, c.admin)
		}
	}
}

// TestRoles asks for everything with each kind of key.
func TestRoles(t *testing.T) {
	g, _ := newGateway(t, map[string]Key{"alpha-key": {Role: Trade, Account: 1}, "copy-key": {Role: DropCopy, Accounts: []uint32{0, 1}}}, 10)
	trader, copier := open(t, g, "alpha-key"), open(t, g, "copy-key")
	for _, c := range []struct {
		operation transports.Operation
		trader    pb.Reason
		copier    pb.Reason
	}{ // all requests are empty: MALFORMED says that the role was no hindrance
		{transports.SubmitOrder, pb.Reason_REASON_MALFORMED, denied},
		{transports.ReplaceOrder, pb.Reason_REASON_MALFORMED, denied},
		{transports.CancelOrder, pb.Reason_REASON_MALFORMED, denied},
		{transports.MassCancel, in, denied},
		{transports.CancelAllAfter, in, denied},
		{transports.GetOrder, pb.Reason_REASON_MALFORMED, denied},
		{transports.ListOrders, in, denied},
		{transports.GetBook, pb.Reason_REASON_MALFORMED, pb.Reason_REASON_MALFORMED},
		{transports.ListInstruments, in, in},
		{transports.Logon, pb.Reason_REASON_MALFORMED, denied},
	} {
		for who, want := range map[*session]pb.Reason{trader: c.trader, copier: c.copier} {
			err := who.Handle(context.Background(), &transports.Exchange{
				Operation: c.operation, Request: c.operation.NewRequest(), Response: c.operation.NewResponse(), ReceivedNs: 1,
			})
			if reasonOf(err) != want {
				t.Errorf("%s with role %d: %v, want %s", c.operation, who.Role, err, want)
			}
		}
	}
	for _, c := range []struct {
		who     *session
		account string
		want    pb.Reason
	}{
		{trader, "", in}, {trader, "alpha", in}, {trader, DemoAccount, denied}, {trader, "nobody", denied},
		{copier, "", pb.Reason_REASON_MALFORMED}, {copier, "alpha", in}, {copier, DemoAccount, in}, {copier, "beta", denied}, {copier, "nobody", denied},
	} {
		e, err := c.who.Subscribe(context.Background(), &pb.StreamExecutionsRequest{Account: c.account})
		if reasonOf(err) != c.want {
			t.Errorf("events of %q with role %d: %v, want %s", c.account, c.who.Role, err, c.want)
		}
		if err == nil {
			e.Close()
		}
	}
	if n := g.Readers(); n != 0 {
		t.Errorf("%d readers are left", n)
	}
}

// TestKeysChangeAtRunTime: who keeps his key notices nothing, who lost it is out at once, with his readers.
func TestKeysChangeAtRunTime(t *testing.T) {
	keys := map[string]Key{
		"stays": {Role: Trade, Account: 1}, "goes": {Role: Trade, Account: 1}, "moves": {Role: Trade, Account: 1},
		"narrows": {Role: DropCopy, Accounts: []uint32{0, 1}},
	}
	g, _ := newGateway(t, keys, 10)
	sessions, streams := map[string]*session{}, map[string]transports.Events{}
	for name := range keys {
		sessions[name] = open(t, g, name)
		e, err := sessions[name].Subscribe(context.Background(), &pb.StreamExecutionsRequest{Account: "alpha"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		streams[name] = e
	}
	if err := g.SetKeys(hashed(map[string]Key{
		"stays": {Role: Trade, Account: 1}, "comes": {Role: Trade, Account: 0}, "moves": {Role: Trade, Account: 0},
		"narrows": {Role: DropCopy, Accounts: []uint32{0}},
	}), false); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, s := range sessions {
		x := transports.Exchange{Operation: transports.ListInstruments, Request: &pb.ListInstrumentsRequest{}, Response: &pb.ListInstrumentsResponse{}}
		err := s.Handle(context.Background(), &x)
		_, streamErr := streams[name].Next(canceled)
		if name == "stays" {
			if err != nil || streamErr != context.Canceled { //nolint:errorlint // it comes as it is
				t.Errorf("%s: %v, its stream %v", name, err, streamErr)
			}
			continue
		}
		if f := transports.AsFault(err); reasonOf(err) != unknown || !f.Final {
			t.Errorf("%s: %v, want an end as UNAUTHENTICATED", name, err)
		}
		if reasonOf(streamErr) != unknown {
			t.Errorf("%s: its stream says %v, want UNAUTHENTICATED", name, streamErr)
		}
	}
	for name, want := range map[string]pb.Reason{"stays": in, "goes": unknown, "moves": in, "comes": in, "narrows": in} {
		if _, err := g.Open(context.Background(), transports.Peer{Key: name}); reasonOf(err) != want {
			t.Errorf("%s afterwards: %v, want %s", name, err, want)
		}
	}
}

// TestLastTradingKeyGoes: the gateway then serves loopback clients as the demo account, and no longer when a key comes.
func TestLastTradingKeyGoes(t *testing.T) {
	g, _ := newGateway(t, map[string]Key{"alpha-key": {Role: Trade, Account: 1}}, 10)
	if err := g.SetKeys(nil, false); err != nil {
		t.Fatal(err)
	}
	demo := open(t, g, "")
	if err := g.SetKeys(hashed(map[string]Key{"admin": {Role: Admin}}), false); err != nil {
		t.Fatal(err)
	}
	if err := demo.usable(context.Background()); err != nil {
		t.Errorf("another administrator ended a client's session: %v", err)
	}
	if err := g.SetKeys(hashed(map[string]Key{"alpha-key": {Role: Trade, Account: 1}}), false); err != nil {
		t.Fatal(err)
	}
	if err := demo.usable(context.Background()); reasonOf(err) != unknown {
		t.Errorf("the demo session lives on beside keys: %v", err)
	}
}

func TestKeyHashRoundTrip(t *testing.T) {
	h := HashKey("secret")
	back, err := ParseKeyHash(h.String())
	if err != nil || back != h {
		t.Errorf("%v, %v", back, err)
	}
	for _, wrong := range []string{"", "abc", h.String() + "0", "zz" + h.String()[2:]} {
		if _, err := ParseKeyHash(wrong); err == nil {
			t.Errorf("%q was read as a hash", wrong)
		}
	}
}

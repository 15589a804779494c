package transportstest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// peer: the gateway learns who speaks.
func peer(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	r.dial(alphaKey).submit(r.limit("who", buy, 1, 0))
	seen := r.probe.seenPeers()
	if len(seen) == 0 {
		t.Fatal("no session was opened")
	}
	for _, p := range seen {
		if p.Transport != s.transport.Name || p.Key != alphaKey || p.TLS != nil {
			t.Errorf("peer of transport %q with key %q, TLS %v", p.Transport, p.Key, p.TLS)
		}
		address, _ := p.Remote.(*net.TCPAddr)
		if !s.hasSockets() {
			if p.Remote != nil {
				t.Errorf("a peer without a network speaks from %v", p.Remote)
			}
		} else if address == nil || !address.IP.IsLoopback() || address.Port == 0 {
			t.Errorf("the peer speaks from %#v, want a loopback TCP address", p.Remote)
		}
	}
}

// maxConnections: one more than allowed is refused, nobody else is hurt, and a place that is given back can be used.
func maxConnections(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts(), withLimits(transports.Limits{MaxConnections: 2}))
	first, second := r.dial(alphaKey), r.dial(betaKey)
	first.submit(r.limit("first", buy, 1, 0))
	second.submit(r.limit("second", buy, 1, 0))
	for i := range 3 {
		third, err := r.tryDial(alphaKey)
		if err == nil {
			_ = third.Close()
			t.Fatalf("connection %d of 2 was admitted", 3+i)
		}
		fault := checkFault(t, "one connection too many", err)
		wantFault(t, fault, pb.Reason_REASON_OVERLOADED, notProcessed)
	}
	first.submit(r.limit("first-again", buy, 1, 0))
	second.submit(r.limit("second-again", buy, 1, 0))
	_ = first.Close()
	eventually(t, "the freed place can be used", func() bool {
		third, err := r.tryDial(alphaKey)
		if err == nil {
			third.submit(r.limit("third", buy, 1, 0))
		}
		return err == nil
	})
	second.submit(r.limit("second-at-last", buy, 1, 0))
}

// certificate makes a self-signed certificate for the loopback address, and a pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "transportstest"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func withTLS(certificate tls.Certificate) setup {
	return func(r *rig) {
		r.listen.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
		r.listen.Limits.HandshakeTimeout = 2 * time.Second
	}
}

func trusting(pool *x509.CertPool) func(*transports.DialConfig) {
	return func(d *transports.DialConfig) { d.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13} }
}

func tlsWorks(t *testing.T, s *suite) {
	s.networked(t)
	serverCertificate, pool := certificate(t)
	r := s.start(t, twoAccounts(), withTLS(serverCertificate))
	if r.refusesTLS(pool) {
		return
	}
	c := r.dial(alphaKey, trusting(pool))
	c.submit(exactly(r.limit("large", buy, 1, 0), 300<<10))
	r.trade(t, []*client{c, r.dial(betaKey, trusting(pool))}, 4, 10)
	for _, p := range r.probe.seenPeers() {
		if p.TLS == nil || !p.TLS.HandshakeComplete {
			t.Errorf("the gateway does not see that the peer speaks TLS: %v", p.TLS)
		}
	}
	if r.listen.TLS.NextProtos != nil {
		t.Errorf("the caller's TLS config was changed: %v", r.listen.TLS.NextProtos)
	}
}

// refusesTLS reports whether the client's engine leaves TLS out. One that is not the default may, and then its error says so.
func (r *rig) refusesTLS(pool *x509.CertPool) bool {
	r.t.Helper()
	if r.variant.Engine == "" {
		return false
	}
	c, err := r.tryDial(alphaKey, trusting(pool))
	if err == nil {
		_ = c.Close()
		return false
	}
	for _, part := range []string{r.variant.Engine, "TLS"} {
		if !strings.Contains(err.Error(), part) {
			r.t.Errorf("an engine that does not speak TLS: the error does not say %q: %v", part, err)
		}
	}
	return true
}

// tlsMismatch: who speaks TLS to a plain listener, plain text to a TLS listener, or trusts another certificate, learns it
// soon and from the error.
func tlsMismatch(t *testing.T, s *suite) {
	s.networked(t)
	serverCertificate, _ := certificate(t)
	_, otherPool := certificate(t)
	secure := s.start(t, twoAccounts(), withTLS(serverCertificate))
	plain := s.start(t, twoAccounts(), withLimits(transports.Limits{HandshakeTimeout: 2 * time.Second}))
	if secure.refusesTLS(otherPool) {
		return
	}
	for _, mismatch := range []struct {
		name   string
		rig    *rig
		change func(*transports.DialConfig)
	}{
		{"a plain client and a TLS listener", secure, func(*transports.DialConfig) {}},
		{"a TLS client and a plain listener", plain, trusting(otherPool)},
		{"a client that trusts another certificate", secure, trusting(otherPool)},
	} {
		// The end of the handshake time, and not the end of the caller's context, ends the dialing: tryDial checks it.
		c, err := mismatch.rig.tryDial(alphaKey, mismatch.change, func(d *transports.DialConfig) { d.Limits.HandshakeTimeout = 2 * time.Second })
		if err == nil {
			_ = c.Close()
			t.Errorf("%s: connected", mismatch.name)
		} else if address := mismatch.rig.dialed.Address; !strings.Contains(err.Error(), address) {
			t.Errorf("%s: the error does not name the address %s: %v", mismatch.name, address, err)
		}
	}
	plain.dial(alphaKey).submit(plain.limit("still-works", buy, 1, 0))
	if n := len(secure.probe.seenPeers()); n != 0 {
		t.Errorf("%d sessions were opened for peers that never made a handshake", n)
	}
}

func busyPort(t *testing.T, s *suite) {
	s.networked(t)
	r := s.start(t, twoAccounts())
	address := r.server.Addr().String()
	second, err := s.transport.Listen(t.Context(), r.probe, transports.ListenConfig{Address: address})
	if err == nil {
		_ = second.Shutdown(context.Background())
		t.Fatal("two servers listen on one address")
	}
	for _, part := range []string{s.transport.Name, address, "address already in use"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	r.dial(alphaKey).submit(r.limit("the-first-goes-on", buy, 1, 0))
}

// congestionControl: the algorithm is the socket's at both ends, and one that the kernel does not know is named.
func congestionControl(t *testing.T, s *suite) {
	s.networked(t)
	algorithms := congestionControls()
	if len(algorithms) == 0 {
		t.Skip("this system has no choice of congestion control")
	}
	for i, server := range algorithms {
		client := algorithms[(i+1)%len(algorithms)]
		r := s.start(t, twoAccounts(), func(r *rig) { r.listen.CongestionControl = server })
		c := r.dial(alphaKey, func(d *transports.DialConfig) { d.CongestionControl = client })
		c.submit(r.limit("controlled", buy, 1, 0))
		accepted, dialed := congestionOf(t, r.server.Addr().(*net.TCPAddr).Port)
		if len(accepted) == 0 || len(dialed) == 0 {
			t.Fatalf("found %d accepted and %d dialed sockets", len(accepted), len(dialed))
		}
		for name, got := range map[string][]string{server: accepted, client: dialed} {
			for _, algorithm := range got {
				if algorithm != name {
					t.Errorf("asked for %s at the server and %s at the client: accepted sockets have %v, dialed ones %v", server, client, accepted, dialed)
				}
			}
		}
	}
	const nobodys = "no-such-control"
	r := s.start(t, twoAccounts())
	if _, err := r.tryDial(alphaKey, func(d *transports.DialConfig) { d.CongestionControl = nobodys }); err == nil || !strings.Contains(err.Error(), nobodys) {
		t.Errorf("dial with an unknown congestion control: %v, want an error that names it", err)
	}
	server, err := s.transport.Listen(t.Context(), r.probe, transports.ListenConfig{Address: "127.0.0.1:0", CongestionControl: nobodys})
	if err == nil {
		_ = server.Shutdown(context.Background())
	}
	if err == nil || !strings.Contains(err.Error(), nobodys) {
		t.Errorf("listen with an unknown congestion control: %v, want an error that names it", err)
	}
}

package tcp_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp"
)

// certificates returns the configurations of a server on 127.0.0.1 and of a client that trusts it.
func certificates(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, &tls.Config{RootCAs: pool}
}

func TestTLS(t *testing.T) {
	serverTLS, clientTLS := certificates(t)
	journal := newSyncer(t)
	seen := make(chan transports.Peer, 8)
	g := &gateway{commit: journal.commit, open: func(p transports.Peer) error {
		seen <- p
		if p.Key == "bad" {
			return transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "nobody has this key")
		}
		return nil
	}}
	server := listen(t, g, transports.ListenConfig{TLS: serverTLS})
	client := dial(t, server, transports.DialConfig{TLS: clientTLS})
	if p := <-seen; p.TLS == nil || p.TLS.NegotiatedProtocol != "tailgate-tcp" {
		t.Errorf("the gateway sees %+v", p)
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for k := range 10 {
				call := order(fmt.Sprintf("%d-%d", i, k), i*k*1000)
				if err := client.Do(context.Background(), call); err != nil {
					t.Error(err)
					return
				}
				if err := checkAnswer(call); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()

	_, err := tcp.Transport().Dial(t.Context(), transports.DialConfig{Address: server.Addr().String(), TLS: clientTLS, Key: "bad"})
	checkFault(t, err, pb.Reason_REASON_UNAUTHENTICATED, pb.Outcome_OUTCOME_NOT_PROCESSED, "nobody has this key")
	_, err = tcp.Transport().Dial(t.Context(), transports.DialConfig{Address: server.Addr().String(), TLS: &tls.Config{}})
	if err == nil || !strings.Contains(err.Error(), "TLS: ") || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a client that does not trust the certificate: %v", err)
	}
	_, err = tcp.Transport().Dial(t.Context(), transports.DialConfig{Address: server.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), "not this protocol") && !strings.Contains(err.Error(), "closed the connection") {
		t.Errorf("a client without TLS: %v", err)
	}
	if err := server.Shutdown(bounded(t)); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	err = client.Do(t.Context(), order("late", 1))
	checkFault(t, err, pb.Reason_REASON_DRAINING, pb.Outcome_OUTCOME_NOT_PROCESSED, "")
}

func TestRefusalUnderTLS(t *testing.T) {
	serverTLS, clientTLS := certificates(t)
	server := listen(t, &gateway{}, transports.ListenConfig{TLS: serverTLS, Limits: transports.Limits{MaxConnections: 1}})
	dial(t, server, transports.DialConfig{TLS: clientTLS})
	_, err := tcp.Transport().Dial(t.Context(), transports.DialConfig{Address: server.Addr().String(), TLS: clientTLS})
	checkFault(t, err, pb.Reason_REASON_OVERLOADED, pb.Outcome_OUTCOME_NOT_PROCESSED, "1 connections are open")
}

func TestSlowReaderUnderTLSIsClosed(t *testing.T) {
	t.Parallel()
	serverTLS, clientTLS := certificates(t)
	log := &logged{}
	server := listen(t, &gateway{}, transports.ListenConfig{TLS: serverTLS, Logger: log.logger(), Limits: transports.Limits{WriteTimeout: 100 * time.Millisecond}})
	p := connect(t, server)
	secure := clientTLS.Clone()
	secure.ServerName = "127.0.0.1"
	p.conn = tls.Client(p.conn, secure)
	p.greet(0)
	for {
		if _, err := p.conn.Write(p.order("x", 500<<10)); err != nil {
			break
		}
	}
	waitLog(t, log, "no byte for 100ms")
}

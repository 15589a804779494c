package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/all"
)

// acknowledger is a gateway that acknowledges every order and has one instrument.
type acknowledger struct{ transports.NoEvents }

func (acknowledger) Open(context.Context, transports.Peer) (transports.Session, error) {
	return acknowledger{}, nil
}

func (acknowledger) Handle(_ context.Context, x *transports.Exchange) error {
	switch request := x.Request.(type) {
	case *pb.ListInstrumentsRequest:
		response, _ := x.Response.(*pb.ListInstrumentsResponse)
		response.Instruments = []*pb.Instrument{{Symbol: "ACME", State: pb.InstrumentState_INSTRUMENT_STATE_OPEN, ReferencePrice: 10_000}}
	case *pb.SubmitOrderRequest:
		response, _ := x.Response.(*pb.SubmitOrderResponse)
		response.ClientOrderId, response.OrderId, response.Status = request.ClientOrderId, 1, pb.OrderStatus_ORDER_STATUS_FILLED
		response.Quantity, response.ClientTag, response.ReceivedNs = request.Quantity, request.ClientTag, uint64(x.ReceivedNs)
	default:
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "%s", x.Operation)
	}
	return nil
}

func (acknowledger) Commit(r transports.Releaser, mark uint64) { r.Release(mark, nil) }
func (acknowledger) Close()                                    {}

// certificate makes a self-signed one for the loopback address and writes it as PEM.
func certificate(t *testing.T) (tls.Certificate, string) {
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
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, path
}

// TestTLS drives every transport under TLS: with the authority it works, without it the certificate is refused.
func TestTLS(t *testing.T) {
	pair, authority := certificate(t)
	for _, transport := range all.All() {
		t.Run(transport.Name, func(t *testing.T) {
			server, err := transport.Listen(t.Context(), acknowledger{}, transports.ListenConfig{
				Address: "127.0.0.1:0", TLS: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
				defer cancel()
				if err := server.Shutdown(ctx); err != nil {
					t.Error(err)
				}
			}()
			args := []string{"--transport", transport.Name, "--target", server.Addr().String(), "--clients", "2", "--requests", "50", "--warmup", "0s", "--tls"}
			for _, trusted := range [][]string{{"--tls-ca", authority}, {"--tls-insecure"}} {
				p := loadtest(t, append(args, trusted...)...)
				p.want(t, exitOK)
				if c := p.run(t).Cells[0]; c.OK != 50 {
					t.Errorf("%v: %d ok of 50: %v", trusted, c.OK, c.Notes)
				}
			}
			if p := loadtest(t, args...); p.status != exitFailure || !strings.Contains(p.stderr, "certificate") {
				t.Errorf("without the authority: status %d, %q; want 1 and the certificate's fault", p.status, p.stderr)
			}
		})
	}
}

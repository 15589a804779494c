package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"tailgate/loadtest/machine"
	"tailgate/loadtest/runner"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/all"
)

// target checks what belongs to a gateway that runs elsewhere.
func (p *plan) target() error {
	o := p.options
	if o.Target == "" {
		return nil
	}
	first := p.cells[0].spec
	for _, c := range p.cells {
		if c.spec.Transport.Name != first.Transport.Name {
			return errors.New("--target: an address speaks one transport; name it with --transport")
		}
	}
	host, err := hostOf("--target", o.Target)
	if err != nil {
		return err
	}
	if !o.TLS {
		return nil
	}
	p.tls = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.TLSInsecure} //nolint:gosec // only when asked for
	if o.TLSCA != "" {
		pem, err := os.ReadFile(o.TLSCA)
		if err != nil {
			return fmt.Errorf("--tls-ca: %w", err)
		}
		p.tls.RootCAs = x509.NewCertPool()
		if !p.tls.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("--tls-ca %s: holds no PEM certificate", o.TLSCA)
		}
	}
	return nil
}

// hostOf is the host of an address that a flag names. The error is about the command line; whether the host exists is for the dialing to find out.
func hostOf(flag, address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return "", fmt.Errorf("%s %q: needed is HOST:PORT", flag, address)
	}
	if n, err := net.DefaultResolver.LookupPort(context.Background(), "tcp", port); err != nil || n == 0 {
		return "", fmt.Errorf("%s %q: the port is a number from 1 to 65535, or the name of a service", flag, address)
	}
	return host, nil
}

// locate finds out whether the target is this machine: then the clients' cores may be the gateway's too. An address that cannot be looked up
// is for the dialing to complain about.
func (p *plan) locate(ctx context.Context, cores []machine.Core) machine.Plan {
	ctx, cancel := context.WithTimeout(ctx, runner.DialTimeout)
	defer cancel()
	_, own, err := machine.Resolve(ctx, p.options.Target)
	return machine.PlanFor(cores, p.options.Target, err == nil && own)
}

// reach asks the target for its instruments before anything is measured, and checks the sizes against them. The error is *workload.SizeError's
// for a size, otherwise it says why nothing can be measured.
func (p *plan) reach(ctx context.Context) error {
	cell := p.runnerCell(p.cells[0])
	cell.Dial.Address = p.options.Target
	instruments, err := runner.Instruments(ctx, cell)
	if err != nil {
		return fmt.Errorf("%s at %s: %w%s", p.cells[0].spec, p.options.Target, err, p.advice(err))
	}
	return p.checkSizes(instruments)
}

// advice is what to do about a target that does not answer as it should, as the end of a sentence; empty where the error says it already.
func (p *plan) advice(err error) string {
	o, name := p.options, p.cells[0].spec.Transport.Name
	var dns *net.DNSError
	var unknown x509.UnknownAuthorityError
	var wrongName x509.HostnameError
	text := err.Error()
	fault, _ := errors.AsType[*transports.Fault](err)
	switch {
	case errors.As(err, &dns):
		return "; check the host in --target"
	case errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(text, "connection refused"):
		return "; nobody listens there: start the gateway, or check the port in --target (" + defaultPorts() + " unless told otherwise)"
	case fault != nil && fault.Reason == pb.Reason_REASON_UNAUTHENTICATED && len(o.Key) == 0:
		return "; give an account's key with --key or in TAILGATE_KEY"
	case fault != nil && fault.Reason == pb.Reason_REASON_UNAUTHENTICATED:
		return "; check --key and TAILGATE_KEY against the gateway's accounts"
	case errors.As(err, &unknown) || errors.As(err, &wrongName) || strings.Contains(text, "x509: "):
		return "; name the authority with --tls-ca, or take any certificate with --tls-insecure"
	case o.TLS && strings.Contains(text, "tls: "):
		return "; does this port speak TLS? Without, leave out --tls"
	case fault != nil && !slices.Contains([]pb.Reason{pb.Reason_REASON_CONNECTION_LOST, pb.Reason_REASON_DEADLINE_EXCEEDED, pb.Reason_REASON_INTERNAL, pb.Reason_REASON_UNIMPLEMENTED}, fault.Reason):
		return "" // the gateway itself has answered
	default:
		also := ", or TLS only (--tls)"
		if o.TLS {
			also = ""
		}
		if errors.Is(err, context.DeadlineExceeded) {
			also += ". Something takes the connection and says nothing: if it is the gateway, it is stopped or stuck"
		}
		return fmt.Sprintf("; does this port speak %s? It may be another transport's (%s unless told otherwise)%s", name, defaultPorts(), also)
	}
}

// defaultPorts lists where a gateway listens unless told otherwise.
func defaultPorts() string {
	var list []string
	for _, t := range all.All() {
		list = append(list, fmt.Sprintf("%s %d", t.Name, t.Port))
	}
	return strings.Join(list, ", ")
}

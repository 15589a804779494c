package machine

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Resolve looks up HOST:PORT once: the addresses that it stands for, unmapped and without zones, as the kernel's table of connections shows
// them, and whether one of them is this machine's own, loopback included.
func Resolve(ctx context.Context, address string) (list []netip.AddrPort, own bool, err error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, false, fmt.Errorf("machine: %w", err)
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, false, fmt.Errorf("machine: %w", err)
	}
	hosts, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, false, fmt.Errorf("machine: %w", err)
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil, false, fmt.Errorf("machine: this machine's own addresses: %w", err)
	}
	for _, h := range hosts {
		h = h.Unmap().WithZone("")
		own = own || isOwn(h, interfaces)
		if a := netip.AddrPortFrom(h, uint16(port)); !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list, own, nil
}

// isOwn: the unspecified address is dialed as loopback.
func isOwn(host netip.Addr, interfaces []net.Addr) bool {
	if host.IsLoopback() || host.IsUnspecified() {
		return true
	}
	return slices.ContainsFunc(interfaces, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap().WithZone("") == host
	})
}

package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// noteOwn adds the sockets that this process has now.
func (w *Watch) noteOwn() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // none are found, and that is said
	}
	for _, entry := range entries {
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err != nil {
			continue // closed since
		}
		if text, ok := strings.CutPrefix(target, "socket:["); ok {
			if inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 32); err == nil {
				w.own[uint32(inode)] = true
			}
		}
	}
}

// The kernel's protocol NETLINK_SOCK_DIAG (sock_diag(7), linux/inet_diag.h).
const (
	sockIDBytes   = 48 // struct inet_diag_sockid
	requestBytes  = 56 // struct inet_diag_req_v2
	messageBytes  = 72 // struct inet_diag_msg
	offsetID      = 4  // of the sockid in a message, 8 in a request
	offsetInode   = 68
	attributeInfo = 2 // INET_DIAG_INFO: struct tcp_info
	attributeCode = 1 // INET_DIAG_REQ_BYTECODE: the filter
	opJump        = 1
	opLocalEqual  = 11
	opRemoteEqual = 12
	established   = 1 << 1 // states as bits
	closeWait     = 1 << 8

	readTimeout = time.Second // for the kernel, which answers at once
	maxSockets  = 1 << 18     // beyond it something is wrong
)

// read lists the open TCP sockets with the port at either end.
func read(port uint16) ([]socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return nil, fmt.Errorf("the kernel does not show sockets (sock_diag): %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written that could be lost
	timeout := unix.NsecToTimeval(readTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return nil, fmt.Errorf("sock_diag: %w", err)
	}
	var list []socket
	buffer := make([]byte, 64<<10)
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if list, err = dump(fd, family, port, buffer, list); err != nil {
			if family == unix.AF_INET6 && errors.Is(err, unix.ENOENT) {
				continue // a kernel without IPv6
			}
			return nil, err
		}
	}
	return list, nil
}

// dump asks for one family's sockets and adds them to the list.
func dump(fd int, family byte, port uint16, buffer []byte, list []socket) ([]socket, error) {
	if err := unix.Sendto(fd, request(family, port), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("sock_diag: %w", err)
	}
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("sock_diag: %w", err)
		}
		for rest := buffer[:n]; len(rest) >= unix.SizeofNlMsghdr; {
			length := int(binary.NativeEndian.Uint32(rest))
			kind := binary.NativeEndian.Uint16(rest[4:])
			if length < unix.SizeofNlMsghdr || length > len(rest) {
				return nil, errors.New("sock_diag: a message of the kernel is cut off")
			}
			body := rest[unix.SizeofNlMsghdr:length]
			rest = rest[min(aligned(length), len(rest)):]
			switch kind {
			case unix.NLMSG_DONE:
				return list, nil
			case unix.NLMSG_ERROR:
				if len(body) >= 4 {
					if code := int32(binary.NativeEndian.Uint32(body)); code != 0 {
						return nil, fmt.Errorf("sock_diag: %w", unix.Errno(-code))
					}
				}
			case unix.SOCK_DIAG_BY_FAMILY:
				s, err := parse(body)
				if err != nil {
					return nil, err
				}
				if list = append(list, s); len(list) > maxSockets {
					return nil, fmt.Errorf("sock_diag: more than %d sockets", maxSockets)
				}
			}
		}
	}
}

func aligned(n int) int { return (n + 3) &^ 3 }

// request asks for the open sockets of a family with the port at either end. The filter is a program: remote port equal, jump to the end,
// which takes the socket; otherwise local port equal, the same; otherwise a jump beyond the end, which refuses it.
func request(family byte, port uint16) []byte {
	const filter = 4 + 8 + 4 + 8 // its attribute's head and the three steps
	b := make([]byte, unix.SizeofNlMsghdr+requestBytes+filter)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	r := b[unix.SizeofNlMsghdr:]
	r[0], r[1], r[2] = family, unix.IPPROTO_TCP, 1<<(attributeInfo-1)
	binary.NativeEndian.PutUint32(r[4:], established|closeWait)
	f := r[requestBytes:]
	binary.NativeEndian.PutUint16(f, filter)
	binary.NativeEndian.PutUint16(f[2:], attributeCode)
	at := 4
	for _, step := range []struct {
		code, yes byte // yes and no: how far to the next step
		no        uint16
		port      bool // the word behind it has the port
	}{{opRemoteEqual, 8, 12, true}, {opJump, 4, 12, false}, {opLocalEqual, 8, 12, true}} {
		f[at], f[at+1] = step.code, step.yes
		binary.NativeEndian.PutUint16(f[at+2:], step.no)
		at += 4
		if step.port {
			binary.NativeEndian.PutUint16(f[at+2:], port)
			at += 4
		}
	}
	return b
}

// parse reads one struct inet_diag_msg with its attributes.
func parse(body []byte) (socket, error) {
	if len(body) < messageBytes {
		return socket{}, errors.New("sock_diag: a socket of the kernel is cut off")
	}
	id := body[offsetID:]
	size := 16
	if body[0] == unix.AF_INET {
		size = 4
	}
	s := socket{
		flow:   flow{address(id[0:], id[4:4+size]), address(id[2:], id[20:20+size])},
		inode:  binary.NativeEndian.Uint32(body[offsetInode:]),
		cookie: binary.NativeEndian.Uint64(id[sockIDBytes-8:]),
	}
	for rest := body[messageBytes:]; len(rest) >= unix.SizeofRtAttr; {
		length, kind := int(binary.NativeEndian.Uint16(rest)), binary.NativeEndian.Uint16(rest[2:])
		if length < unix.SizeofRtAttr || length > len(rest) {
			return socket{}, errors.New("sock_diag: an attribute of the kernel is cut off")
		}
		if kind == attributeInfo {
			var err error
			s.figures, err = parseInfo(rest[unix.SizeofRtAttr:length])
			return s, err
		}
		rest = rest[min(aligned(length), len(rest)):]
	}
	return socket{}, errors.New("sock_diag: the kernel shows a socket without TCP's figures")
}

func address(port, host []byte) netip.AddrPort {
	a, _ := netip.AddrFromSlice(host) // 4 or 16 bytes
	return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(port))
}

// parseInfo reads struct tcp_info, which grows from version to version of the kernel.
func parseInfo(b []byte) (figures, error) {
	var info unix.TCPInfo
	if len(b) < int(unsafe.Offsetof(info.Delivered)) {
		return figures{}, errors.New("the kernel does not show what holds a sender up (Linux 4.10 and later do)")
	}
	u32 := func(offset uintptr) uint64 { return uint64(binary.NativeEndian.Uint32(b[offset:])) }
	u64 := func(offset uintptr) uint64 { return binary.NativeEndian.Uint64(b[offset:]) }
	us := func(offset uintptr) time.Duration { return time.Duration(u64(offset)) * time.Microsecond }
	f := figures{
		retransmits: u32(unsafe.Offsetof(info.Total_retrans)), bytesReceived: u64(unsafe.Offsetof(info.Bytes_received)),
		segmentsSent: u32(unsafe.Offsetof(info.Segs_out)), segmentsReceived: u32(unsafe.Offsetof(info.Segs_in)),
		busy: us(unsafe.Offsetof(info.Busy_time)), receiverLimited: us(unsafe.Offsetof(info.Rwnd_limited)), bufferLimited: us(unsafe.Offsetof(info.Sndbuf_limited)),
	}
	if offset := unsafe.Offsetof(info.Bytes_sent); len(b) >= int(offset)+8 {
		f.bytesSent = u64(offset)
	} else {
		f.bytesSent = u64(unsafe.Offsetof(info.Bytes_acked)) // before Linux 4.19: what was acknowledged
	}
	return f, nil
}

package wire

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Version is the protocol version that this package speaks, the lowest and the highest.
const Version = 1

// magic opens the payload of HELLO and HELLO_ACK.
const magic = "TGOE"

// Features that both sides must want.
const (
	// FeatureCredit: the client sends only what the server granted, says what it would send (DEMAND), and gives back what it is asked for (RECLAIM).
	FeatureCredit uint32 = 1 << 0
)

// Bounds of the handshake, in bytes.
const (
	MaxKey       = 1024 // API key
	MaxHandshake = 4096 // payload of HELLO and HELLO_ACK; a receiver refuses more before it reads it
	helloSize    = 18
	ackSize      = 44
)

// HelloMessage is the payload of HELLO.
type HelloMessage struct {
	Lowest, Highest uint16 // versions that the client speaks
	Features        uint32 // features that the client wants
	MaxPayload      uint32 // largest payload that the client takes, in bytes
	Key             string // API key, at most MaxKey bytes; empty = none
}

// Encode returns the payload. A key longer than MaxKey is the caller's error and is cut by nobody: check before.
func (m HelloMessage) Encode() []byte {
	b := append(make([]byte, 0, helloSize+len(m.Key)), magic...)
	b = binary.LittleEndian.AppendUint16(b, m.Lowest)
	b = binary.LittleEndian.AppendUint16(b, m.Highest)
	b = binary.LittleEndian.AppendUint32(b, m.Features)
	b = binary.LittleEndian.AppendUint32(b, m.MaxPayload)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Key)))
	return append(b, m.Key...)
}

// DecodeHello reads the payload of a HELLO. Bytes behind the key are a later version's and are ignored.
func DecodeHello(b []byte) (m HelloMessage, err error) {
	if len(b) < helloSize {
		return m, fmt.Errorf("HELLO has %d bytes of payload, at least %d are needed", len(b), helloSize)
	}
	if string(b[:4]) != magic {
		return m, fmt.Errorf("HELLO starts with %q instead of %q", b[:4], magic)
	}
	m.Lowest = binary.LittleEndian.Uint16(b[4:])
	m.Highest = binary.LittleEndian.Uint16(b[6:])
	m.Features = binary.LittleEndian.Uint32(b[8:])
	m.MaxPayload = binary.LittleEndian.Uint32(b[12:])
	n := int(binary.LittleEndian.Uint16(b[16:]))
	if m.Lowest > m.Highest {
		return m, fmt.Errorf("HELLO offers versions %d to %d, which is no range", m.Lowest, m.Highest)
	}
	if n > MaxKey || n > len(b)-helloSize {
		return m, fmt.Errorf("HELLO announces a key of %d bytes and carries %d; at most %d are taken", n, len(b)-helloSize, MaxKey)
	}
	m.Key = string(b[helloSize : helloSize+n])
	return m, nil
}

// AckMessage is the payload of HELLO_ACK.
type AckMessage struct {
	Version        uint16        // the version that both speak from here on
	Features       uint32        // features that both want
	MaxRequest     uint32        // largest payload of a REQUEST, in bytes
	Floor          uint32        // credit that the connection holds at the start, in units; 0 = it has to ask
	Reserve        uint32        // credit of its own for urgent requests, in units
	Largest        uint32        // largest cost that can ever be covered, in units
	IdleTimeout    time.Duration // the server closes a connection without any frame for so long; milliseconds on the wire
	RequestTimeout time.Duration // from the first byte of a frame to its last; milliseconds on the wire
	Model          CostModel
}

// Encode returns the payload.
func (m AckMessage) Encode() []byte {
	b := append(make([]byte, 0, ackSize+4*len(m.Model.Answer)), magic...)
	b = binary.LittleEndian.AppendUint16(b, m.Version)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Model.Answer)))
	b = binary.LittleEndian.AppendUint32(b, m.Features)
	b = binary.LittleEndian.AppendUint32(b, m.MaxRequest)
	b = binary.LittleEndian.AppendUint32(b, m.Floor)
	b = binary.LittleEndian.AppendUint32(b, m.Model.Base)
	b = binary.LittleEndian.AppendUint32(b, m.Model.Unit)
	b = binary.LittleEndian.AppendUint32(b, milliseconds(m.IdleTimeout))
	b = binary.LittleEndian.AppendUint32(b, milliseconds(m.RequestTimeout))
	b = binary.LittleEndian.AppendUint32(b, m.Reserve)
	b = binary.LittleEndian.AppendUint32(b, m.Largest)
	for _, bytes := range m.Model.Answer {
		b = binary.LittleEndian.AppendUint32(b, bytes)
	}
	return b
}

// DecodeAck reads the payload of a HELLO_ACK. Bytes behind the table are a later version's and are ignored.
func DecodeAck(b []byte) (m AckMessage, err error) {
	if len(b) < ackSize {
		return m, fmt.Errorf("HELLO_ACK has %d bytes of payload, at least %d are needed", len(b), ackSize)
	}
	if string(b[:4]) != magic {
		return m, fmt.Errorf("HELLO_ACK starts with %q instead of %q", b[:4], magic)
	}
	m.Version = binary.LittleEndian.Uint16(b[4:])
	entries := int(binary.LittleEndian.Uint16(b[6:]))
	m.Features = binary.LittleEndian.Uint32(b[8:])
	m.MaxRequest = binary.LittleEndian.Uint32(b[12:])
	m.Floor = binary.LittleEndian.Uint32(b[16:])
	m.Model.Base = binary.LittleEndian.Uint32(b[20:])
	m.Model.Unit = binary.LittleEndian.Uint32(b[24:])
	m.IdleTimeout = time.Duration(binary.LittleEndian.Uint32(b[28:])) * time.Millisecond
	m.RequestTimeout = time.Duration(binary.LittleEndian.Uint32(b[32:])) * time.Millisecond
	m.Reserve = binary.LittleEndian.Uint32(b[36:])
	m.Largest = binary.LittleEndian.Uint32(b[40:])
	switch {
	case m.Version != Version:
		return m, fmt.Errorf("HELLO_ACK chooses version %d, which was not offered", m.Version)
	case m.Model.Unit == 0 || m.Model.Base >= 1<<16 || max(m.Floor, m.Reserve, m.Largest) >= 1<<31:
		return m, fmt.Errorf("HELLO_ACK has a cost model that cannot be: base %d, unit %d bytes, floor %d, urgent reserve %d, largest cost %d",
			m.Model.Base, m.Model.Unit, m.Floor, m.Reserve, m.Largest)
	case entries == 0 || 4*entries > len(b)-ackSize:
		return m, fmt.Errorf("HELLO_ACK announces %d entries of its cost model and carries %d bytes of them; at least the entry 0 is needed", entries, len(b)-ackSize)
	}
	m.Model.Answer = make([]uint32, entries)
	for i := range m.Model.Answer {
		m.Model.Answer[i] = binary.LittleEndian.Uint32(b[ackSize+4*i:])
	}
	return m, nil
}

// milliseconds rounds d up, and down to what 32 bits hold.
func milliseconds(d time.Duration) uint32 {
	return uint32(min((d+time.Millisecond-1)/time.Millisecond, 1<<32-1))
}

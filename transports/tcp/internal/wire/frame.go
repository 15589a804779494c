// Package wire is the byte level of raw TCP: frames, the two handshake messages, and the arithmetic of credit. proto/SPEC.md is its text.
//
// It knows bytes only. It must never know sockets, goroutines, sessions or what an order means.
package wire

import (
	"encoding/binary"
	"fmt"
)

// HeaderSize is the length of a frame's header in bytes.
const HeaderSize = 24

// PlaceOfY is where Y stands in a header.
const PlaceOfY = 22

// Type says what a frame is.
type Type uint8

// The frame types of version 1.
const (
	Hello    Type = iota + 1 // client: first frame
	HelloAck                 // server: answer to it
	Request                  // client: one operation
	Response                 // server: its answer
	Reject                   // server: its refusal
	Credit                   // server: permission to send
	Demand                   // client: wish to send, or unused permission given back
	Reclaim                  // server: asks for unused permission back
	Ping                     // client: are you there, and are we of one mind
	Pong                     // server: answer to it
	GoAway                   // server: takes nothing new
	Error                    // either side: last frame before it closes
	Event                    // server: a numbered event of an account
)

// Ignorable is the first of the types that a receiver skips when it does not know them; an unknown type below it is fatal.
const Ignorable Type = 0x80

var typeNames = [...]string{
	Hello: "HELLO", HelloAck: "HELLO_ACK", Request: "REQUEST", Response: "RESPONSE", Reject: "REJECT", Credit: "CREDIT",
	Demand: "DEMAND", Reclaim: "RECLAIM", Ping: "PING", Pong: "PONG", GoAway: "GOAWAY", Error: "ERROR", Event: "EVENT",
}

// String is the name in SPEC.md, or the number of a type that has none.
func (t Type) String() string {
	if t == 0 || int(t) >= len(typeNames) {
		return fmt.Sprintf("type 0x%02x", uint8(t))
	}
	return typeNames[t]
}

// The message classes of a REQUEST. The others are reserved and mean Normal.
const (
	ClassMask uint8 = 3 // the bits of Header.Flags that hold it
	Normal    uint8 = 0
	Urgent    uint8 = 1 // paid from the connection's reserve: CancelOrder, MassCancel, CancelAllAfter
)

// Header is the fixed part of every frame. What each field means depends on the type; a field that a type does not use is
// sent as zero and ignored by the receiver.
type Header struct {
	Length      uint32 // bytes of payload behind the header
	Type        Type
	Flags       uint8  // bits 0 and 1: message class of a REQUEST
	Code        uint16 // operation, or reason
	Correlation uint32 // which request
	Credit      uint32 // Granted from the server, Released from the client
	Aux         uint32 // see the type
	X, Y        uint16 // see the type
}

// Put writes the header into the first HeaderSize bytes of b.
func (h Header) Put(b []byte) {
	_ = b[HeaderSize-1]
	binary.LittleEndian.PutUint32(b[0:], h.Length)
	b[4] = byte(h.Type)
	b[5] = h.Flags
	binary.LittleEndian.PutUint16(b[6:], h.Code)
	binary.LittleEndian.PutUint32(b[8:], h.Correlation)
	binary.LittleEndian.PutUint32(b[12:], h.Credit)
	binary.LittleEndian.PutUint32(b[16:], h.Aux)
	binary.LittleEndian.PutUint16(b[20:], h.X)
	binary.LittleEndian.PutUint16(b[PlaceOfY:], h.Y)
}

// Parse reads the header in the first HeaderSize bytes of b. Any bytes are a header; whether it makes sense is the receiver's question.
func Parse(b []byte) Header {
	_ = b[HeaderSize-1]
	return Header{
		Length:      binary.LittleEndian.Uint32(b[0:]),
		Type:        Type(b[4]),
		Flags:       b[5],
		Code:        binary.LittleEndian.Uint16(b[6:]),
		Correlation: binary.LittleEndian.Uint32(b[8:]),
		Credit:      binary.LittleEndian.Uint32(b[12:]),
		Aux:         binary.LittleEndian.Uint32(b[16:]),
		X:           binary.LittleEndian.Uint16(b[20:]),
		Y:           binary.LittleEndian.Uint16(b[PlaceOfY:]),
	}
}

// Frame returns a whole frame: h with its length set, and the payload. It allocates; it is for frames that are rare.
func Frame(h Header, payload []byte) []byte {
	h.Length = uint32(len(payload))
	b := make([]byte, HeaderSize+len(payload))
	h.Put(b)
	copy(b[HeaderSize:], payload)
	return b
}

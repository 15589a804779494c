package wire_test

import (
	"bytes"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp/internal/wire"
)

func FuzzHeader(f *testing.F) {
	f.Add(make([]byte, wire.HeaderSize))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: x\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < wire.HeaderSize {
			return
		}
		again := make([]byte, wire.HeaderSize)
		wire.Parse(b).Put(again)
		if !bytes.Equal(again, b[:wire.HeaderSize]) {
			t.Errorf("%x becomes %x", b[:wire.HeaderSize], again)
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add(wire.HelloMessage{Lowest: 1, Highest: 2, Features: 3, MaxPayload: 4, Key: "key"}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := wire.DecodeHello(b)
		if err != nil {
			return
		}
		again := m.Encode()
		if !bytes.Equal(again, b[:len(again)]) {
			t.Errorf("%x becomes %x", b, again)
		}
	})
}

func FuzzAck(f *testing.F) {
	f.Add(wire.AckMessage{Version: 1, Features: 1, MaxRequest: 2, Floor: 3, Reserve: 4, Largest: 5, IdleTimeout: time.Second, RequestTimeout: time.Minute, Model: wire.Model()}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := wire.DecodeAck(b)
		if err != nil {
			return
		}
		again := m.Encode()
		if !bytes.Equal(again, b[:len(again)]) {
			t.Errorf("%x becomes %x", b, again)
		}
	})
}

// TestCostIsTheFormula compares with SPEC.md's formula in numbers that cannot overflow.
func TestCostIsTheFormula(t *testing.T) {
	model := wire.Model()
	rapid.Check(t, func(t *rapid.T) {
		op := transports.Operation(rapid.Uint16().Draw(t, "operation"))
		if rapid.Bool().Draw(t, "known") {
			op = transports.Operation(rapid.IntRange(1, 9).Draw(t, "number"))
		}
		n := rapid.Uint32().Draw(t, "bytes")
		extra := model.Answer[0]
		if int(op) < len(model.Answer) {
			extra = model.Answer[op]
		}
		largest := new(big.Int).Add(big.NewInt(int64(n)), big.NewInt(int64(extra)))
		units, rest := new(big.Int).DivMod(largest, big.NewInt(1024), new(big.Int))
		if rest.Sign() > 0 {
			units.Add(units, big.NewInt(1))
		}
		if want := units.Int64() + 16; int64(model.Cost(op, n)) != want {
			t.Errorf("cost of operation %d with %d bytes: %d, want %d", op, n, model.Cost(op, n), want)
		}
	})
}

func TestAfterIsSerial(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Uint32().Draw(t, "a")
		ahead := rapid.Uint32Range(1, 1<<31-1).Draw(t, "ahead")
		if !wire.After(a+ahead, a) || wire.After(a, a+ahead) || wire.After(a, a) {
			t.Errorf("%d and %d ahead of it are out of order", a, ahead)
		}
	})
}

// TestLargestElementsFitTheModel encodes the largest element of each list that has an answer of its own in the cost model.
func TestLargestElementsFitTheModel(t *testing.T) {
	id, symbol := string(bytes.Repeat([]byte("x"), 32)), string(bytes.Repeat([]byte("X"), 16))
	largest := &pb.Order{
		ClientOrderId: id, OrderId: 1<<64 - 1, Symbol: symbol, Side: 2, Type: 2, TimeInForce: 4, Status: 6, Reason: 299, Price: -1, Quantity: 1<<64 - 1,
		FilledQuantity: 1<<64 - 1, LeavesQuantity: 1<<64 - 1, LastPrice: -1, FilledNotional: -1, OrderVersion: 1<<32 - 1, ReceivedNs: 1, PostOnly: true,
		DisplayQuantity: 1<<64 - 1, MinimumQuantity: 1<<64 - 1, SelfTradePrevention: 5,
	}
	level := &pb.BookLevel{Price: -1, Quantity: 1<<64 - 1, OrderCount: 1<<32 - 1}
	instrument := &pb.Instrument{
		Symbol: symbol, TickNanos: 1<<64 - 1, LotSize: 1<<64 - 1, Currency: "EUR", State: 3, Version: 1<<32 - 1, MinNotional: -1, MaxNotional: -1, ReferencePrice: -1,
	}
	orders := &pb.ListOrdersResponse{NextPageToken: string(bytes.Repeat([]byte("t"), 64))}
	book := &pb.GetBookResponse{Symbol: symbol, LastPrice: -1, LogSequence: 1<<64 - 1}
	instruments := &pb.ListInstrumentsResponse{}
	for range 1000 {
		orders.Orders, instruments.Instruments = append(orders.Orders, largest), append(instruments.Instruments, instrument)
	}
	for range 5000 {
		book.Bids, book.Asks = append(book.Bids, level), append(book.Asks, level)
	}
	model := wire.Model()
	for op, m := range map[transports.Operation]proto.Message{transports.ListOrders: orders, transports.GetBook: book, transports.ListInstruments: instruments} {
		if size, most := uint64(proto.Size(m)), model.LargestAnswer(op, 0); size > most {
			t.Errorf("%v: the largest answer has %d bytes, the model says %d", op, size, most)
		} else if 2*size < most {
			t.Errorf("%v: the largest answer has %d bytes, the model says %d, more than twice that", op, size, most)
		}
	}
	// The other answers fit transports.ResponseOverhead beside the tag, a text of 512 bytes included.
	ack := &pb.SubmitOrderResponse{
		ClientOrderId: id, OrderId: 1<<64 - 1, Status: 5, Reason: 299, Quantity: 1<<64 - 1, FilledQuantity: 1<<64 - 1, LeavesQuantity: 1<<64 - 1, LastPrice: -1,
		FilledNotional: -1, Sequence: 1<<64 - 1, Duplicate: true, OrderVersion: 1<<32 - 1, ReceivedNs: 1, SentNs: 1, Epoch: 1<<32 - 1, Text: string(make([]byte, 512)),
	}
	if size := proto.Size(ack); size > transports.ResponseOverhead {
		t.Errorf("an acknowledgement without a tag has %d bytes, %d are allowed for", size, transports.ResponseOverhead)
	}
}

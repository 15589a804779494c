package orders

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

func drawID(t *rapid.T, label string) ID {
	id, ok := ParseID(rapid.StringMatching(`[A-Za-z0-9_-]{1,32}`).Draw(t, label))
	if !ok {
		t.Fatalf("%s: the alphabet and ParseID differ", label)
	}
	return id
}

func drawSymbol(t *rapid.T) Symbol {
	s, ok := ParseSymbol(rapid.StringMatching(`[A-Z0-9._-]{1,16}`).Draw(t, "symbol"))
	if !ok {
		t.Fatal("the alphabet and ParseSymbol differ")
	}
	return s
}

// drawCommand draws any command that a journal may hold.
func drawCommand(t *rapid.T) Command {
	c := Command{Kind: Kind(rapid.IntRange(int(DefineInstrument), int(Cancel)).Draw(t, "kind"))}
	switch c.Kind {
	case DefineInstrument:
		c.Instrument = &Instrument{
			Symbol: drawSymbol(t), TickNanos: rapid.Uint64().Draw(t, "tick"), LotSize: rapid.Uint64().Draw(t, "lot"),
			Currency: rapid.StringMatching(`[A-Z]{3}`).Draw(t, "currency"), State: pb.InstrumentState(rapid.IntRange(1, 3).Draw(t, "state")),
			MinNotional: rapid.Int64().Draw(t, "min"), MaxNotional: rapid.Int64().Draw(t, "max"), ReferencePrice: rapid.Int64().Draw(t, "reference"),
		}
		return c
	case DefineAccount:
		c.Name = drawID(t, "name").String()
		return c
	}
	c.Account = rapid.Uint32Range(0, MaxAccounts-1).Draw(t, "account")
	c.ReceivedNs = rapid.Int64().Draw(t, "received")
	c.ClientOrderID = drawID(t, "order")
	c.Verdict.Reason = pb.Reason(rapid.IntRange(0, 300).Draw(t, "reason"))
	c.Verdict.Limit = rapid.Int64().Draw(t, "limit")
	if c.Kind == Submit {
		c.Symbol = drawSymbol(t)
		c.Side = matching.Side(rapid.IntRange(1, 2).Draw(t, "side"))
		c.Type = matching.OrderType(rapid.IntRange(1, 2).Draw(t, "type"))
		c.TimeInForce = matching.TimeInForce(rapid.IntRange(1, 3).Draw(t, "tif"))
		c.Verdict.Bound = rapid.Int64().Draw(t, "bound")
	} else if rapid.Bool().Draw(t, "remembered") {
		c.RequestID = drawID(t, "request")
	}
	if c.Kind != Cancel {
		c.Quantity = rapid.Uint64().Draw(t, "quantity")
		c.Price = rapid.Int64().Draw(t, "price")
	}
	return c
}

func TestCommandRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCommand(t)
		text := c.Append(nil)
		if len(text) > MaxCommandBytes {
			t.Fatalf("encoded to %d bytes, MaxCommandBytes is %d", len(text), MaxCommandBytes)
		}
		var back Command
		if err := back.Decode(text); err != nil {
			t.Fatal(err)
		}
		definition := back.Instrument
		if c.Kind == DefineInstrument {
			if definition == nil || *definition != *c.Instrument {
				t.Fatalf("instrument came back as %+v, was %+v", definition, c.Instrument)
			}
			back.Instrument = c.Instrument
		}
		if back != c {
			t.Fatalf("came back as %+v, was %+v", back, c)
		}
		for cut := range text {
			if err := back.Decode(text[:cut]); !errors.Is(err, ErrEncoding) {
				t.Fatalf("cut to %d of %d bytes: %v, want ErrEncoding", cut, len(text), err)
			}
		}
		if err := back.Decode(append(text, 0)); !errors.Is(err, ErrEncoding) {
			t.Fatalf("with a byte too many: %v, want ErrEncoding", err)
		}
	})
}

// FuzzDecode: whatever decodes encodes back to the same bytes, so a command has one encoding.
func FuzzDecode(f *testing.F) {
	rapidSeed := Command{Kind: Submit, Side: matching.Buy, Type: matching.Limit, TimeInForce: matching.Day, Quantity: 7, Price: -3}
	rapidSeed.ClientOrderID, _ = ParseID("abc-1")
	rapidSeed.Symbol, _ = ParseSymbol("ACME")
	f.Add(rapidSeed.Append(nil))
	f.Add((&Command{Kind: DefineAccount, Name: "demo"}).Append(nil))
	f.Fuzz(func(t *testing.T, text []byte) {
		var c Command
		if err := c.Decode(text); err != nil {
			if !errors.Is(err, ErrEncoding) {
				t.Fatalf("%v does not wrap ErrEncoding", err)
			}
			return
		}
		if back := c.Append(nil); !bytes.Equal(back, text) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", text, c, back)
		}
	})
}

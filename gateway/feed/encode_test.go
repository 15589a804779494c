package feed

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"tailgate/gateway/orders"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// message is what AppendReport writes, the slow and obvious way.
func message(r *orders.Report, account string) *pb.ExecutionReport {
	o := &r.Order
	m := &pb.ExecutionReport{
		Sequence: r.Sequence, Epoch: r.Epoch, Type: r.Type, ExecutionId: r.ExecutionID, MatchId: r.MatchID,
		LastPrice: r.LastPrice, LastQuantity: r.LastQuantity, Liquidity: r.Liquidity, Reason: r.Reason,
		EventNs: uint64(r.EventNs), Account: account,
		Order: &pb.Order{
			ClientOrderId: o.ClientOrderID.String(), OrderId: o.OrderID, Symbol: o.Symbol.String(),
			Side: pb.Side(o.Side), Type: pb.OrderType(o.Type), TimeInForce: pb.TimeInForce(o.TimeInForce),
			Status: o.Status, Reason: o.Reason, Price: o.Price, Quantity: o.Quantity,
			FilledQuantity: o.Filled, LeavesQuantity: o.Leaves, LastPrice: o.LastPrice, FilledNotional: o.FilledNotional,
			OrderVersion: o.Version, ReceivedNs: uint64(o.ReceivedNs), PostOnly: o.PostOnly,
			DisplayQuantity: o.DisplayQuantity, MinimumQuantity: o.MinimumQuantity,
			SelfTradePrevention: pb.SelfTradePrevention(o.SelfTradePrevention),
		},
	}
	if o.Type != 0 && o.SelfTradePrevention == 0 {
		m.Order.SelfTradePrevention = pb.SelfTradePrevention_SELF_TRADE_PREVENTION_NONE
	}
	return m
}

// TestReportIsProtobufs: what is written by hand is what protobuf writes, to the byte, whatever the values.
func TestReportIsProtobufs(t *testing.T) {
	u64 := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(1, 300), rapid.Uint64())
	i64 := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(-300, 300), rapid.Int64())
	u32 := rapid.OneOf(rapid.Just(uint32(0)), rapid.Uint32())
	number := rapid.Uint8Range(0, 250)
	rapid.Check(t, func(t *rapid.T) {
		r := orders.Report{
			Epoch: u32.Draw(t, "epoch"), Sequence: u64.Draw(t, "sequence"), Type: pb.ExecutionType(number.Draw(t, "type")),
			ExecutionID: u64.Draw(t, "execution"), MatchID: u64.Draw(t, "match"),
			LastPrice: i64.Draw(t, "last price"), LastQuantity: u64.Draw(t, "last quantity"),
			Liquidity: pb.Liquidity(number.Draw(t, "liquidity")), Reason: pb.Reason(number.Draw(t, "reason")), EventNs: i64.Draw(t, "event"),
			Order: orders.Order{
				OrderID: u64.Draw(t, "order"), Side: matching.Side(number.Draw(t, "side")),
				Type: matching.OrderType(number.Draw(t, "order type")), TimeInForce: matching.TimeInForce(number.Draw(t, "tif")),
				Status: pb.OrderStatus(number.Draw(t, "status")), Reason: pb.Reason(number.Draw(t, "order reason")),
				Price: i64.Draw(t, "price"), Quantity: u64.Draw(t, "quantity"), Filled: u64.Draw(t, "filled"), Leaves: u64.Draw(t, "leaves"),
				LastPrice: i64.Draw(t, "order last"), FilledNotional: i64.Draw(t, "notional"), Version: u32.Draw(t, "version"),
				ReceivedNs: i64.Draw(t, "received"), PostOnly: rapid.Bool().Draw(t, "post only"),
				DisplayQuantity: u64.Draw(t, "display"), MinimumQuantity: u64.Draw(t, "minimum"),
			},
		}
		if r.Order.Type != 0 {
			r.Order.SelfTradePrevention = matching.SelfTradePrevention(rapid.Uint8Range(0, 5).Draw(t, "stp"))
		}
		r.Order.ClientOrderID, _ = orders.ParseID(rapid.StringMatching(`[A-Za-z0-9_-]{0,32}`).Draw(t, "id"))
		r.Order.Symbol, _ = orders.ParseSymbol(rapid.StringMatching(`[A-Z0-9._-]{0,16}`).Draw(t, "symbol"))
		account := rapid.StringMatching(`[A-Za-z0-9_-]{0,32}`).Draw(t, "account")

		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(message(&r, account))
		if err != nil {
			t.Fatal(err)
		}
		before := []byte("before")
		if got := AppendReport(before, &r, account); !bytes.Equal(got[:len(before)], before) || !bytes.Equal(got[len(before):], want) {
			t.Fatalf("%+v\nis written as\n%x\nprotobuf writes\n%x", r, got[len(before):], want)
		}
	})
}

// largest is a report of which no field can be longer.
func largest() orders.Report {
	r := orders.Report{
		Epoch: math.MaxUint32, Sequence: math.MaxUint64, Type: 255, ExecutionID: math.MaxUint64, MatchID: math.MaxUint64,
		LastPrice: -1, LastQuantity: math.MaxUint64, Liquidity: 255, Reason: 255, EventNs: -1,
		Order: orders.Order{
			OrderID: math.MaxUint64, Side: 255, Type: 255, TimeInForce: 255, Status: 255, Reason: 255, Price: -1, Quantity: math.MaxUint64,
			Filled: math.MaxUint64, Leaves: math.MaxUint64, LastPrice: -1, FilledNotional: -1, Version: math.MaxUint32, ReceivedNs: -1,
			PostOnly: true, DisplayQuantity: math.MaxUint64, MinimumQuantity: math.MaxUint64, SelfTradePrevention: 255,
		},
	}
	r.Order.ClientOrderID, _ = orders.ParseID(strings.Repeat("i", orders.MaxIDBytes))
	r.Order.Symbol, _ = orders.ParseSymbol(strings.Repeat("S", orders.MaxSymbolBytes))
	return r
}

func TestReportKeepsToItsBound(t *testing.T) {
	r := largest()
	if n := len(AppendReport(nil, &r, strings.Repeat("a", 32))); n > transports.MaxEventBytes {
		t.Errorf("a report has %d bytes, the contract says %d at most", n, transports.MaxEventBytes)
	}
}

func BenchmarkAppendReport(b *testing.B) {
	r := orders.Report{
		Epoch: 1, Sequence: 12_345, Type: pb.ExecutionType_EXECUTION_TYPE_TRADE, ExecutionID: 23_456, MatchID: 11_000, LastPrice: 10_000, LastQuantity: 10,
		Liquidity: pb.Liquidity_LIQUIDITY_MAKER, EventNs: 1_700_000_000_000_000_000,
		Order: orders.Order{OrderID: 9_999, Side: 1, Type: 1, TimeInForce: 1, Status: 3, Price: 10_000, Quantity: 10, Filled: 10, LastPrice: 10_000, FilledNotional: 100_000, Version: 2, ReceivedNs: 1_700_000_000_000_000_000},
	}
	r.Order.ClientOrderID, _ = orders.ParseID("order-000001")
	r.Order.Symbol, _ = orders.ParseSymbol("ACME")
	buffer := make([]byte, 0, transports.MaxEventBytes)
	b.ReportAllocs()
	for b.Loop() {
		buffer = AppendReport(buffer[:0], &r, "demo")
	}
	b.SetBytes(int64(len(buffer)))
}

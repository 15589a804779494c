package tcp_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp"
	"tailgate/transports/tcp/internal/credit"
	"tailgate/transports/tcp/internal/wire"
)

const specFile = "../../proto/SPEC.md"

func spec(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(specFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// example is one fenced block of SPEC.md, ```hex > NAME or ```hex < NAME.
type example struct {
	line       int
	fromClient bool
	name       string
	bytes      []byte
	any        []bool // a byte that may be anything
}

// examples returns the blocks of each conversation, which is what stands under a heading of the third level.
func examples(t *testing.T) map[string][]example {
	t.Helper()
	conversations := make(map[string][]example)
	title, inside := "", false
	var at example
	for i, line := range strings.Split(spec(t), "\n") {
		switch {
		case strings.HasPrefix(line, "### "):
			title = strings.TrimPrefix(line, "### ")
		case strings.HasPrefix(line, "```hex "):
			fields := strings.Fields(line)
			if len(fields) != 3 {
				t.Fatalf("%s:%d: want ```hex > NAME", specFile, i+1)
			}
			at, inside = example{line: i + 1, fromClient: fields[1] == ">", name: fields[2]}, true
		case inside && strings.HasPrefix(line, "```"):
			conversations[title] = append(conversations[title], at)
			inside = false
		case inside:
			data, _, _ := strings.Cut(line, "#")
			for field := range strings.FieldsSeq(data) {
				b, err := hex.DecodeString(strings.ReplaceAll(field, "..", "00"))
				if err != nil {
					t.Fatalf("%s:%d: %v", specFile, i+1, err)
				}
				for k, v := range b {
					at.bytes, at.any = append(at.bytes, v), append(at.any, field[2*k:2*k+2] == "..")
				}
			}
		}
	}
	return conversations
}

// TestSpecExamples plays every conversation of SPEC.md against a server.
func TestSpecExamples(t *testing.T) {
	conversations := examples(t)
	if len(conversations) < 11 {
		t.Fatalf("SPEC.md has %d conversations, want at least 11", len(conversations))
	}
	model := wire.Model()
	_, largest := model.Largest(transports.DefaultMaxRequestBytes)
	for title, list := range conversations {
		t.Run(title, func(t *testing.T) {
			server := listenWith(t, exampleGateway(), transports.ListenConfig{}, credit.Config{Capacity: largest + 2*(credit.DefaultFloor+credit.DefaultReserve)})
			p := connect(t, server)
			stopped := make(chan struct{})
			close(stopped)
			for _, e := range list {
				if e.fromClient {
					if h := wire.Parse(e.bytes); h.Type.String() == e.name && int(h.Length) != len(e.bytes)-wire.HeaderSize {
						t.Errorf("%s:%d: the header says %d bytes of payload, there are %d", specFile, e.line, h.Length, len(e.bytes)-wire.HeaderSize)
					}
					p.send(e.bytes)
					continue
				}
				if e.name == "GOAWAY" {
					stopped = make(chan struct{})
					go func() {
						defer close(stopped)
						_ = server.Shutdown(context.Background())
					}()
				}
				if e.name == "RECLAIM" { // somebody else needs it
					greet(t, server, wire.FeatureCredit).send(wire.Frame(wire.Header{Type: wire.Demand, Aux: largest, Y: uint16(largest)}, nil))
				}
				h, payload, err := p.tryRead()
				if err != nil {
					t.Fatalf("%s:%d: %v", specFile, e.line, err)
				}
				got := wire.Frame(h, payload)
				if h.Type.String() != e.name || !matches(got, e) {
					t.Fatalf("%s:%d: the server sends %v:\n%s", specFile, e.line, h.Type, dump(got))
				}
			}
			_ = p.conn.Close()
			<-stopped
		})
	}
}

func matches(got []byte, e example) bool {
	if len(got) != len(e.bytes) {
		return false
	}
	for i := range got {
		if got[i] != e.bytes[i] && !e.any[i] {
			return false
		}
	}
	return true
}

// dump writes bytes as SPEC.md does: the header in its fields, the payload in rows.
func dump(b []byte) string {
	var s strings.Builder
	h := b[:wire.HeaderSize]
	fmt.Fprintf(&s, "%x %x %x %x %x %x %x %x %x\n", h[:4], h[4:5], h[5:6], h[6:8], h[8:12], h[12:16], h[16:20], h[20:22], h[22:])
	for rest := b[wire.HeaderSize:]; len(rest) > 0; {
		n := min(16, len(rest))
		fmt.Fprintf(&s, "%x\n", rest[:n])
		rest = rest[n:]
	}
	return s.String()
}

// exampleGateway answers in the same way each time.
func exampleGateway() *gateway {
	return &gateway{
		open: func(peer transports.Peer) error {
			if peer.Key == "wrong" {
				return transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "nobody has this key")
			}
			return nil
		},
		events: func(request *pb.StreamExecutionsRequest) transports.Events {
			return &exampleEvents{sequence: max(1, request.FromSequence)}
		},
		handle: func(x *transports.Exchange) error {
			switch request := x.Request.(type) {
			case *pb.Logon:
				ack := x.Response.(*pb.LogonAck)
				ack.Epoch, ack.NextSequence = 1, request.LastSequence+1
				return nil
			case *pb.Logout:
				return nil
			case *pb.GetBookRequest:
				x.Response.(*pb.GetBookResponse).Symbol = request.Symbol
				return nil
			case *pb.CancelOrderRequest:
				response := x.Response.(*pb.CancelOrderResponse)
				response.ClientOrderId, response.Status = request.ClientOrderId, pb.OrderStatus_ORDER_STATUS_CANCELED
				return nil
			}
			request, response := x.Request.(*pb.SubmitOrderRequest), x.Response.(*pb.SubmitOrderResponse)
			response.ClientOrderId, response.OrderId, response.Status = request.ClientOrderId, 1, pb.OrderStatus_ORDER_STATUS_ACCEPTED
			response.Quantity, response.LeavesQuantity, response.Sequence = request.Quantity, request.Quantity, 1
			response.OrderVersion, response.Epoch, response.ReceivedNs = 1, 1, uint64(x.ReceivedNs)
			response.ClientTag = request.ClientTag
			return nil
		},
	}
}

// exampleEvents has one event of epoch 1.
type exampleEvents struct {
	sequence uint64
	given    bool
}

func (e *exampleEvents) Place() (uint32, uint64) { return 1, e.sequence }
func (e *exampleEvents) Close()                  {}

func (e *exampleEvents) Next(ctx context.Context) ([]transports.Event, error) {
	if e.given {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	e.given = true
	report, err := proto.Marshal(&pb.ExecutionReport{
		Sequence: e.sequence, Epoch: 1, Type: pb.ExecutionType_EXECUTION_TYPE_CANCELED, ExecutionId: 9, EventNs: 1_000_000_000, Account: "demo",
		Order: &pb.Order{ClientOrderId: "order-1", OrderId: 1, Symbol: "TG.A", Status: pb.OrderStatus_ORDER_STATUS_CANCELED, Price: 100, Quantity: 10},
	})
	return []transports.Event{{Epoch: 1, Sequence: e.sequence, Report: report}}, err
}

// TestSpecTables compares the numbers in SPEC.md with those in the code.
func TestSpecTables(t *testing.T) {
	text := spec(t)
	types := regexp.MustCompile(`(?m)^\| (0x[0-9a-f]{2}) \| ([A-Z_]+) \|`).FindAllStringSubmatch(text, -1)
	if len(types) != 13 {
		t.Errorf("SPEC.md has %d frame types, want 13", len(types))
	}
	for _, m := range types {
		n, err := strconv.ParseUint(m[1], 0, 8)
		if err != nil || wire.Type(n).String() != m[2] {
			t.Errorf("SPEC.md: type %s is %s, in the code %v (%v)", m[1], m[2], wire.Type(n), err)
		}
	}
	operations := regexp.MustCompile(`(?m)^\| (\d+) \| ([A-Z][A-Za-z]+) \|$`).FindAllStringSubmatch(text, -1)
	inContract := 0
	for op := transports.Operation(1); op.Valid(); op++ {
		inContract++
	}
	if len(operations) != inContract {
		t.Errorf("SPEC.md has %d operations, the contract %d", len(operations), inContract)
	}
	for _, m := range operations {
		n, err := strconv.Atoi(m[1])
		if err != nil || transports.Operation(n).String() != m[2] {
			t.Errorf("SPEC.md: operation %s is %s, in the code %v (%v)", m[1], m[2], transports.Operation(n), err)
		}
	}
	for _, number := range []string{
		fmt.Sprintf("at most %d,%03d", wire.MaxHandshake/1000, wire.MaxHandshake%1000),
		fmt.Sprintf("0 to %d,%03d", wire.MaxKey/1000, wire.MaxKey%1000),
		fmt.Sprintf("at most %d KiB of them for a connection", tcp.EventRoom>>10),
		fmt.Sprintf("(%v unless configured)", "5 s"), fmt.Sprintf("%d + ceil((n + %d) / %d)", wire.Model().Base, transports.ResponseOverhead, wire.Model().Unit),
	} {
		if !strings.Contains(text, number) {
			t.Errorf("SPEC.md does not say %q", number)
		}
	}
	if transports.DefaultHandshakeTimeout != 5*time.Second || transports.DefaultWriteTimeout != time.Second {
		t.Error("SPEC.md names the defaults of the handshake timeout (5 s) and the write timeout (1 s), and they have changed")
	}
}

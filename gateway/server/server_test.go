package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"tailgate/gateway/config"
	"tailgate/gateway/journal"
	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/all"
)

// stop shuts a server down and fails the test when that took more than it should.
func stop(t testing.TB, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Fatalf("shutdown: %v", err)
	}
}

func open(t testing.TB, c Config) *Server {
	t.Helper()
	s, err := Open(context.Background(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask makes one exchange without a transport.
func ask[R proto.Message](t testing.TB, s *Server, op transports.Operation, request proto.Message) R {
	t.Helper()
	session, err := s.Gateway().Open(context.Background(), transports.Peer{})
	if err != nil {
		t.Fatal(err)
	}
	x := transports.Exchange{Operation: op, ReceivedNs: transports.Now(), Request: request, Response: op.NewResponse()}
	if err := transports.Do(context.Background(), session, &x); err != nil {
		t.Fatal(err)
	}
	response, ok := x.Response.(R)
	if !ok {
		t.Fatalf("%s answers with a %T", op, x.Response)
	}
	return response
}

func limitOrder(id string, side pb.Side, quantity uint64, price int64) *pb.SubmitOrderRequest {
	return &pb.SubmitOrderRequest{
		ClientOrderId: id, Symbol: "ACME", Side: side, Type: pb.OrderType_ORDER_TYPE_LIMIT,
		TimeInForce: pb.TimeInForce_TIME_IN_FORCE_DAY, Quantity: quantity, Price: price,
	}
}

// visible is all that the account demo can see, as text.
func visible(t testing.TB, s *Server) []string {
	t.Helper()
	var lines []string
	for token := ""; ; {
		page := ask[*pb.ListOrdersResponse](t, s, transports.ListOrders,
			&pb.ListOrdersRequest{State: pb.ListOrdersState_LIST_ORDERS_STATE_ALL, PageSize: 100, PageToken: token})
		for _, o := range page.GetOrders() {
			lines = append(lines, protojson.Format(o))
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	book := ask[*pb.GetBookResponse](t, s, transports.GetBook, &pb.GetBookRequest{Symbol: "ACME", Depth: 5000})
	book.LogSequence = 0 // a start may add definitions
	lines = append(lines, protojson.Format(book))
	lines = append(lines, protojson.Format(ask[*pb.ListInstrumentsResponse](t, s, transports.ListInstruments, &pb.ListInstrumentsRequest{})))
	return lines
}

func TestRestartGivesTheSameOrdersBookAndAnswers(t *testing.T) {
	c := quiet(t)
	s := open(t, c)
	requests := make([]*pb.SubmitOrderRequest, 300)
	answers := make([]*pb.SubmitOrderResponse, len(requests))
	for i := range requests {
		side := pb.Side_SIDE_BUY + pb.Side(i%2)
		requests[i] = limitOrder(fmt.Sprint("o-", i), side, uint64(1+i%7), 10_000+int64(i%11)-int64(i%2)*3)
		answers[i] = ask[*pb.SubmitOrderResponse](t, s, transports.SubmitOrder, requests[i])
	}
	ask[*pb.CancelOrderResponse](t, s, transports.CancelOrder, &pb.CancelOrderRequest{RequestId: "c-1", ClientOrderId: "o-298"})
	ask[*pb.ReplaceOrderResponse](t, s, transports.ReplaceOrder, &pb.ReplaceOrderRequest{RequestId: "r-1", ClientOrderId: "o-299", Quantity: 50, Price: 10_020})
	before := visible(t, s)
	stop(t, s)

	c.Limits.MaxQuantity = 1 // limits of today do not judge orders of yesterday
	s = open(t, c)
	defer stop(t, s)
	if after := visible(t, s); !slices.Equal(before, after) {
		t.Fatalf("after the restart\n%s\nbefore\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	for i, request := range requests {
		again := ask[*pb.SubmitOrderResponse](t, s, transports.SubmitOrder, request)
		again.SentNs = answers[i].GetSentNs()
		answers[i].Duplicate = true
		if !proto.Equal(again, answers[i]) {
			t.Fatalf("%s asked again after the restart:\n%v\nfirst answer\n%v", request.GetClientOrderId(), again, answers[i])
		}
	}
}

func TestChangedInstrumentIsJournaledOnce(t *testing.T) {
	c := quiet(t)
	stop(t, open(t, c))
	c.Instruments[0].State = "halted"
	for range 2 {
		s := open(t, c)
		list := ask[*pb.ListInstrumentsResponse](t, s, transports.ListInstruments, &pb.ListInstrumentsRequest{})
		if i := list.GetInstruments()[0]; i.GetVersion() != 2 || i.GetState() != pb.InstrumentState_INSTRUMENT_STATE_HALTED {
			t.Errorf("got %v, want version 2, halted", i)
		}
		stop(t, s)
	}
}

func TestInstrumentThatIsNoLongerConfiguredIsClosed(t *testing.T) {
	c := quiet(t)
	s := open(t, c)
	ask[*pb.SubmitOrderResponse](t, s, transports.SubmitOrder, limitOrder("rests", pb.Side_SIDE_BUY, 1, 10_000))
	stop(t, s)
	c.Instruments = c.Instruments[1:]
	s = open(t, c)
	defer stop(t, s)
	if a := ask[*pb.SubmitOrderResponse](t, s, transports.SubmitOrder, limitOrder("late", pb.Side_SIDE_BUY, 1, 10_000)); a.GetReason() != pb.Reason_REASON_INSTRUMENT_NOT_OPEN {
		t.Errorf("a new order got %v", a)
	}
	if a := ask[*pb.CancelOrderResponse](t, s, transports.CancelOrder, &pb.CancelOrderRequest{ClientOrderId: "rests"}); a.GetStatus() != pb.OrderStatus_ORDER_STATUS_CANCELED {
		t.Errorf("a cancel got %v", a)
	}
}

func TestSizesThatAreTooSmallForTheJournalSayWhich(t *testing.T) {
	c := quiet(t)
	s := open(t, c)
	for i := range 1_500 {
		ask[*pb.SubmitOrderResponse](t, s, transports.SubmitOrder, limitOrder(fmt.Sprint("o-", i), pb.Side_SIDE_BUY, 1, 10_000))
	}
	stop(t, s)
	for want, shrink := range map[string]func(*Config){
		"at most 1000 orders":                func(c *Config) { c.Book.MaxOrders, c.Book.MaxLevels = 1000, 1000 },
		"the table of ids is full: it holds": func(c *Config) { c.IDs.Max = 1000 },
	} {
		smaller := c
		shrink(&smaller)
		if _, err := Open(context.Background(), smaller, nil); !errors.Is(err, orders.ErrReplay) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want one with %q", err, want)
		}
	}
	stop(t, open(t, c))
}

func TestReplayEndsWithItsContext(t *testing.T) {
	c := quiet(t)
	stop(t, open(t, c))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Open(ctx, c, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	stop(t, open(t, c))
}

// journalFile is the only segment with records in it.
func journalFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && info.Size() >= 1<<20 {
			return f
		}
	}
	t.Fatalf("no segment among %v", files)
	return ""
}

func TestDamagedJournalStopsTheStartWithFileAndOffset(t *testing.T) {
	c := quiet(t)
	s := open(t, c)
	for i := range 100 {
		ask[*pb.SubmitOrderResponse](t, s, transports.SubmitOrder, limitOrder(fmt.Sprint("o-", i), pb.Side_SIDE_BUY, 1, 9_000))
	}
	stop(t, s)
	path := journalFile(t, c.Journal.Dir)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(text), "o-50")
	if at < 0 {
		t.Fatal("order o-50 is not in the journal")
	}
	text[at] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(context.Background(), c, nil)
	if !errors.Is(err, journal.ErrDamaged) {
		t.Fatalf("got %v, want ErrDamaged", err)
	}
	if !strings.Contains(err.Error(), filepath.Base(path)) || !strings.Contains(err.Error(), "at byte") {
		t.Errorf("%v names no file or offset", err)
	}
	if again, err := os.ReadFile(path); err != nil || string(again) != string(text) {
		t.Error("the start changed the damaged file")
	}
}

func TestJournalOfAnotherProgramStopsTheStart(t *testing.T) {
	c := quiet(t)
	j, _, err := journal.Open(journal.Options{Dir: c.Journal.Dir, SegmentBytes: c.Journal.SegmentBytes}, func(journal.Entry) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(1, []byte("something else")); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), c, nil); err == nil || !strings.Contains(err.Error(), "not a command of this version") {
		t.Errorf("got %v", err)
	}
}

func TestSecondGatewayOnTheSameFolderIsRefused(t *testing.T) {
	c := quiet(t)
	s := open(t, c)
	defer stop(t, s)
	if _, err := Open(context.Background(), c, nil); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("got %v, want ErrLocked", err)
	}
}

func TestBusyPortStopsTheStartAndLeavesNothing(t *testing.T) {
	for _, transport := range all.All() {
		t.Run(transport.Name, func(t *testing.T) {
			taken, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer taken.Close()
			c := quiet(t)
			c.Listeners[transport.Name] = Listener{Address: taken.Addr().String()}
			_, err = Start(context.Background(), c, nil)
			var listen *ListenError
			if !errors.As(err, &listen) || listen.Transport != transport.Name || !errors.Is(err, syscall.EADDRINUSE) {
				t.Fatalf("got %v", err)
			}
			if !strings.Contains(err.Error(), taken.Addr().String()) {
				t.Errorf("%v does not name the address", err)
			}
			c.Listeners[transport.Name] = Listener{Address: "127.0.0.1:0"}
			s, err := Start(context.Background(), c, nil)
			if err != nil {
				t.Fatalf("the failed start left something behind: %v", err)
			}
			stop(t, s)
		})
	}
}

func TestCommentedFileIsTheDefault(t *testing.T) {
	text, err := os.ReadFile("../../configs/gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultConfig()
	c, err := config.Parse(text, config.Config{Listeners: want.Listeners})
	if err != nil {
		t.Fatal(err)
	}
	// As YAML, in which an empty list and no list are the same.
	says, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if wanted, err := want.YAML(); err != nil || string(says) != string(wanted) {
		t.Errorf("%v, configs/gateway.yaml says\n%s\nthe default is\n%s", err, says, wanted)
	}
	for name := range want.Listeners {
		if !strings.Contains(string(text), "\n  "+name+":") {
			t.Errorf("configs/gateway.yaml does not show the listener %s", name)
		}
	}
}

func TestNoTransportIsAnError(t *testing.T) {
	if _, err := Start(context.Background(), quiet(t), nil); err == nil || !strings.Contains(err.Error(), "no transport is enabled") {
		t.Errorf("got %v", err)
	}
}

func TestMissingCertificateNamesTheFile(t *testing.T) {
	c := quiet(t)
	c.TLS.Certificate, c.TLS.Key = "no-such.pem", "no-such-key.pem"
	c.Listeners["grpc"] = Listener{Address: "127.0.0.1:0"}
	if _, err := Start(context.Background(), c, nil); err == nil || !strings.Contains(err.Error(), "no-such.pem") {
		t.Errorf("got %v", err)
	}
}

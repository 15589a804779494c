package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// TestNodeClient plays the scenarios of a client that was written from proto/SPEC.md in another language against a real gateway.
func TestNodeClient(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("needs Node.js (node), which is not installed")
	}
	for _, scenario := range []struct {
		name string
		play func(t *testing.T, s *Server, node *node)
	}{
		{"order", nodeOrder}, {"exhaust", nodeExhaust}, {"drain", nodeDrain}, {"key", nodeKey},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			config := quiet(t)
			config.Listeners["tcp"] = Listener{Address: "127.0.0.1:0"}
			s, err := Start(t.Context(), config, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer stop(t, s)
			scenario.play(t, s, startNode(t, scenario.name, s.Addr("tcp")))
		})
	}
}

// node is a scenario that runs.
type node struct {
	command *exec.Cmd
	out     *bufio.Reader
	errors  bytes.Buffer
}

func startNode(t *testing.T, scenario string, address net.Addr) *node {
	t.Helper()
	host, port, err := net.SplitHostPort(address.String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	n := &node{}
	n.command = exec.CommandContext(ctx, "node", filepath.Join("..", "..", "transports", "tcp", "testdata", "client.mjs"), scenario, host, port, "no-such-key")
	if scenario != "key" {
		n.command.Args = n.command.Args[:len(n.command.Args)-1]
	}
	n.command.Stderr = &n.errors
	pipe, err := n.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	n.out = bufio.NewReader(pipe)
	if err := n.command.Start(); err != nil {
		t.Fatal(err)
	}
	return n
}

// line reads one line of what it prints.
func (n *node) line(t *testing.T) []byte {
	t.Helper()
	line, err := n.out.ReadBytes('\n')
	if err != nil {
		_ = n.command.Wait()
		t.Fatalf("node printed nothing more (%v): %s", err, n.errors.String())
	}
	return line
}

// result reads the scenario's result and waits for its end.
func (n *node) result(t *testing.T, into any) {
	t.Helper()
	line := n.line(t)
	if err := n.command.Wait(); err != nil {
		t.Fatalf("node: %v\n%s", err, n.errors.String())
	}
	if err := json.Unmarshal(line, into); err != nil {
		t.Fatalf("%v in %s", err, line)
	}
}

type nodeDetail struct {
	Reason  pb.Reason
	Outcome pb.Outcome
	Message string
}

func nodeOrder(t *testing.T, s *Server, node *node) {
	var got struct {
		OrderID uint64
		Status  pb.OrderStatus
		Unknown nodeDetail
		Pong    uint32
		Agree   bool
	}
	node.result(t, &got)
	if got.OrderID == 0 || got.Status != pb.OrderStatus_ORDER_STATUS_ACCEPTED {
		t.Errorf("the order is %v with id %d, want it accepted", got.Status, got.OrderID)
	}
	if got.Unknown.Reason != pb.Reason_REASON_UNIMPLEMENTED || got.Unknown.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED {
		t.Errorf("operation 99 is answered with %+v", got.Unknown)
	}
	if got.Pong != 4711 || !got.Agree {
		t.Errorf("PONG has correlation id %d; both count the same credit: %v", got.Pong, got.Agree)
	}
	kept := ask[*pb.GetOrderResponse](t, s, transports.GetOrder, &pb.GetOrderRequest{ClientOrderId: "node-0"})
	if kept.GetOrder().GetOrderId() != got.OrderID {
		t.Errorf("the gateway has order %d, the client was told %d", kept.GetOrder().GetOrderId(), got.OrderID)
	}
}

func nodeExhaust(t *testing.T, _ *Server, node *node) {
	var got struct{ Acked, Floor, Demands, Credits, Sent, MostOutstanding int }
	node.result(t, &got)
	if got.Acked != 300 || got.Sent != 300 {
		t.Errorf("%d of 300 orders were sent and %d answered", got.Sent, got.Acked)
	}
	if got.Floor == 0 || got.Demands == 0 || got.MostOutstanding >= 300 {
		t.Errorf("credit was never exhausted: %+v", got)
	}
	t.Logf("%+v", got)
}

func nodeDrain(t *testing.T, s *Server, node *node) {
	if line := node.line(t); string(line) != "ready\n" {
		t.Fatalf("node says %q", line)
	}
	stop(t, s)
	var got struct {
		Acked, NotProcessed, Unknown []string
		Reason                       pb.Reason
	}
	node.result(t, &got)
	if got.Reason != pb.Reason_REASON_DRAINING || len(got.Unknown) > 0 {
		t.Errorf("the drain gave %v and left %d orders in doubt", got.Reason, len(got.Unknown))
	}
	again := open(t, s.config)
	defer stop(t, again)
	kept := map[string]bool{}
	for token := ""; ; {
		page := ask[*pb.ListOrdersResponse](t, again, transports.ListOrders,
			&pb.ListOrdersRequest{State: pb.ListOrdersState_LIST_ORDERS_STATE_ALL, PageSize: 1000, PageToken: token})
		for _, o := range page.GetOrders() {
			kept[o.GetClientOrderId()] = true
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	for _, id := range got.Acked {
		if !kept[id] {
			t.Errorf("order %s was acknowledged and is lost", id)
		}
	}
	for _, id := range got.NotProcessed {
		if kept[id] {
			t.Errorf("order %s was called not processed and has entered", id)
		}
	}
	if len(kept) != len(got.Acked) {
		t.Errorf("%d orders entered, %d were acknowledged", len(kept), len(got.Acked))
	}
	t.Logf("%d acknowledged, %d not processed", len(got.Acked), len(got.NotProcessed))
}

func nodeKey(t *testing.T, _ *Server, node *node) {
	var got struct{ Refused nodeDetail }
	node.result(t, &got)
	if got.Refused.Reason != pb.Reason_REASON_UNAUTHENTICATED || got.Refused.Message == "" {
		t.Errorf("a wrong key is answered with %+v", got.Refused)
	}
}

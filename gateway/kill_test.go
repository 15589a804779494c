package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/all"
)

// process is a gateway that runs in a process of its own.
type process struct {
	command   *exec.Cmd
	addresses map[string]string // by transport
	logged    chan []string     // what it logged after its ready line, once its log has ended
}

// startProcess starts a gateway on free ports and waits for its ready line.
func startProcess(t *testing.T, dir string, more ...string) *process {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--data", dir}, more...)
	for _, name := range append(all.Names(), adminListener) {
		args = append(args, "--listen", name+"=127.0.0.1:0")
	}
	p := &process{command: exec.Command(executable, args...), addresses: make(map[string]string), logged: make(chan []string, 1)}
	p.command.Env = append(os.Environ(), asGateway+"=1")
	stderr, err := p.command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		var line struct{ Msg, Transport, Address string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("not a JSON log line: %s", lines.Text())
		}
		if line.Msg == "listening" {
			p.addresses[line.Transport] = line.Address
		}
		if line.Msg == "ready" {
			go func() { p.logged <- messages(lines) }()
			return p
		}
	}
	t.Fatalf("the gateway ended before it was ready: %v", p.command.Wait())
	return nil
}

// messages reads a log to its end; a line that is not JSON stands as it is.
func messages(lines *bufio.Scanner) (list []string) {
	for lines.Scan() {
		var line struct{ Msg string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			line.Msg = lines.Text()
		}
		list = append(list, line.Msg)
	}
	return list
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.command.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.logged
	_ = p.command.Wait() // "signal: killed" is what was asked for
}

func dialProcess(t *testing.T, p *process, name string) transports.Client {
	t.Helper()
	spec, err := all.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	client, err := spec.Transport.Dial(context.Background(), transports.DialConfig{Address: p.addresses[name]})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// submit sends an order for one lot; the id's first letter is its side.
func submit(client transports.Client, id string) (*pb.SubmitOrderResponse, error) {
	side := pb.Side_SIDE_BUY
	if id[0] == 'S' {
		side = pb.Side_SIDE_SELL
	}
	response := &pb.SubmitOrderResponse{}
	err := client.Do(context.Background(), &transports.Call{
		Operation: transports.SubmitOrder, Response: response,
		Request: &pb.SubmitOrderRequest{
			ClientOrderId: id, Symbol: "ACME", Side: side, Type: pb.OrderType_ORDER_TYPE_LIMIT,
			TimeInForce: pb.TimeInForce_TIME_IN_FORCE_GTC, Quantity: 1, Price: 10_000,
		},
	})
	return response, err
}

// TestKillLosesNothingThatWasAcked ends the process without warning at a random moment, while clients of every transport trade,
// and starts it again: every acked order is there with the same answer, none is there twice, an order in doubt is there or can
// be entered. TAILGATE_KILL_ROUNDS sets the number of rounds on one growing journal.
func TestKillLosesNothingThatWasAcked(t *testing.T) {
	rounds := 3
	if text := os.Getenv("TAILGATE_KILL_ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("TAILGATE_KILL_ROUNDS is %q, needed is a number from 1", text)
		}
		rounds = n
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	acked := make(map[string]*pb.SubmitOrderResponse)
	var doubt []string
	for round := range rounds {
		p := startProcess(t, dir)
		killAfter := 50 + random.IntN(2000) // acks
		var mu sync.Mutex
		var acks int
		enough := make(chan struct{})
		var wait sync.WaitGroup
		for _, name := range all.Names() {
			for worker := range 2 {
				client := dialProcess(t, p, name)
				wait.Go(func() {
					defer client.Close()
					for i := 0; ; i++ {
						id := fmt.Sprintf("%c-%d-%s-%d-%d", "BS"[(i+worker)%2], round, name, worker, i)
						response, err := submit(client, id)
						mu.Lock()
						if err != nil {
							doubt = append(doubt, id)
							mu.Unlock()
							return
						}
						acked[id] = response
						acks++
						if acks == killAfter {
							close(enough)
						}
						mu.Unlock()
					}
				})
			}
		}
		<-enough
		p.kill(t)
		wait.Wait()
	}

	p := startProcess(t, dir)
	defer p.kill(t)
	client := dialProcess(t, p, "tcp")
	defer client.Close()
	for id, first := range acked {
		again, err := submit(client, id)
		if err != nil {
			t.Fatal(err)
		}
		if !again.GetDuplicate() || again.GetOrderId() != first.GetOrderId() || again.GetSequence() != first.GetSequence() ||
			again.GetStatus() != first.GetStatus() || again.GetReceivedNs() != first.GetReceivedNs() {
			t.Fatalf("acked order %s: first answer\n%v\nafter %d kills\n%v", id, first, rounds, again)
		}
	}
	entered := 0
	for _, id := range doubt {
		response, err := submit(client, id)
		if err != nil {
			t.Fatal(err)
		}
		if response.GetDuplicate() {
			entered++
		}
	}
	t.Logf("%d kills, %d acked orders all there; of %d in doubt %d had been entered", rounds, len(acked), len(doubt), entered)

	seen := make(map[string]bool)
	list := &pb.ListOrdersResponse{}
	for token := ""; ; {
		if err := client.Do(context.Background(), &transports.Call{
			Operation: transports.ListOrders, Response: list,
			Request: &pb.ListOrdersRequest{State: pb.ListOrdersState_LIST_ORDERS_STATE_ALL, PageSize: 1000, PageToken: token},
		}); err != nil {
			t.Fatal(err)
		}
		for _, o := range list.GetOrders() {
			if seen[o.GetClientOrderId()] {
				t.Errorf("order %s is there twice", o.GetClientOrderId())
			}
			seen[o.GetClientOrderId()] = true
		}
		if token = list.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(seen) != len(acked)+len(doubt) {
		t.Errorf("%d orders are there, %d acked and %d in doubt were sent", len(seen), len(acked), len(doubt))
	}
}

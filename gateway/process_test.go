package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"tailgate/gateway/server"
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
	for _, name := range append(all.Names(), server.AdminListener) {
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
	response, err := do(client, transports.SubmitOrder, &pb.SubmitOrderRequest{
		ClientOrderId: id, Symbol: "ACME", Side: side, Type: pb.OrderType_ORDER_TYPE_LIMIT,
		TimeInForce: pb.TimeInForce_TIME_IN_FORCE_GTC, Quantity: 1, Price: 10_000,
	})
	return response.(*pb.SubmitOrderResponse), err
}

func do(client transports.Client, op transports.Operation, request proto.Message) (proto.Message, error) {
	response := op.NewResponse()
	err := client.Do(context.Background(), &transports.Call{Operation: op, Request: request, Response: response})
	return response, err
}

// doPatiently is do by a client that heeds a retry time, as often as a journal may need that is behind its small segments: what was refused
// so was not processed, and its id is unused.
func doPatiently(client transports.Client, op transports.Operation, request proto.Message) (response proto.Message, err error) {
	for range 100 {
		response, err = do(client, op, request)
		fault, ok := errors.AsType[*transports.Fault](err)
		if !ok || fault.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED || fault.RetryAfter == 0 {
			return response, err
		}
		time.Sleep(fault.RetryAfter)
	}
	return response, err
}

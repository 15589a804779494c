package grpc_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/grpc"
	"tailgate/transports/internal/fake"
)

// A session: log on, send an order, read the event that it causes, log out.
func Example_session() {
	address, stop := standIn() // as in "127.0.0.1:PORT"
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	events := make(chan *pb.ExecutionReport, 1024) // receive must not wait for long: the answers come behind the events
	trader, err := grpc.Transport().Trade(ctx, transports.DialConfig{Address: address, Key: "demo"},
		&pb.Logon{SessionId: "desk-1", DisconnectMode: pb.DisconnectMode_DISCONNECT_MODE_ON_DISCONNECT, GraceMs: 1000},
		func(event *pb.ExecutionReport) { events <- event })
	if err != nil {
		fmt.Println(err)
		return
	}
	defer trader.Close()
	fmt.Println("logged on, the next event is", trader.Ack().GetNextSequence())

	var ack pb.SubmitOrderResponse
	err = trader.Do(ctx, &transports.Call{
		Operation: transports.SubmitOrder,
		Request: &pb.SubmitOrderRequest{
			ClientOrderId: "order-1", Symbol: "DEMO", Side: pb.Side_SIDE_BUY, Type: pb.OrderType_ORDER_TYPE_LIMIT,
			TimeInForce: pb.TimeInForce_TIME_IN_FORCE_GTC, Quantity: 5, Price: 10_000,
		},
		Response: &ack,
	})
	if fault, ok := errors.AsType[*transports.Fault](err); ok {
		// NOT_PROCESSED: the order is not there. UNKNOWN: the same id again, on a new session where this one is over, gets the first answer.
		fmt.Println(fault.Reason, fault.Outcome)
		return
	}
	fmt.Println(ack.GetClientOrderId(), ack.GetStatus()) // a business refusal is an answer, too: REJECTED, with its reason
	fmt.Println("event", (<-events).GetSequence())

	if err := trader.Logout(ctx, "done for today"); err != nil {
		fmt.Println(err)
	}
	<-trader.Done()
	fmt.Println("ended with", trader.Err()) // to come back: Logon with the epoch and the sequence of the last event read

	// Output:
	// logged on, the next event is 1
	// order-1 ORDER_STATUS_ACCEPTED
	// event 1
	// ended with <nil>
}

// standIn stands in for a gateway: it takes every order, with an event for each.
func standIn() (address string, stop func()) {
	gateway := &fake.Gateway{Feed: &fake.Feed{}, Key: "demo"}
	gateway.OnHandle = func(_ context.Context, x *transports.Exchange) error {
		gateway.Answer(x)
		if x.Operation == transports.SubmitOrder {
			gateway.Feed.Publish(1)
		}
		return nil
	}
	server, err := grpc.Transport().Listen(context.Background(), gateway, transports.ListenConfig{Address: "127.0.0.1:0"})
	if err != nil {
		panic(err)
	}
	return server.Addr().String(), func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			panic(err)
		}
	}
}

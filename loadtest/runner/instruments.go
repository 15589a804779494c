package runner

import (
	"context"
	"fmt"
	"time"

	"tailgate/loadtest/workload"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Instruments opens one connection with the cell's first key and asks the gateway what can be traded: its open instruments, maxInstruments at
// most, as the cell's flow will use them. Bounded by DialTimeout, or less where a request may take less, for both together.
func Instruments(ctx context.Context, cell Cell) ([]workload.Instrument, error) {
	config := cell.Dial
	if len(cell.Keys) > 0 {
		config.Key = cell.Keys[0]
	}
	ctx, cancel := context.WithTimeout(ctx, cell.dialTimeout())
	defer cancel()
	client, err := cell.Transport.Dial(ctx, config)
	if err != nil {
		return nil, err
	}
	list, err := listInstruments(ctx, client, config.Address, cell.dialTimeout())
	_ = client.Close() // it has answered, or its failure is told
	return list, err
}

// fillBook gives the first instrument's book the levels that the flow reads. Bounded by DialTimeout.
func fillBook(ctx context.Context, client transports.Client, flow *workload.Flow) error {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	for _, order := range flow.BookOrders() {
		var response pb.SubmitOrderResponse
		call := transports.Call{Operation: transports.SubmitOrder, Request: order, Response: &response}
		if err := client.Do(ctx, &call); err != nil {
			return fmt.Errorf("an order that fills the book of %s: %w", order.Symbol, err)
		}
		if response.Status != pb.OrderStatus_ORDER_STATUS_ACCEPTED {
			return fmt.Errorf("an order that fills the book of %s does not rest: %s %s %s", order.Symbol, response.Status, response.Reason, response.Text)
		}
	}
	return nil
}

func listInstruments(ctx context.Context, client transports.Client, address string, timeout time.Duration) ([]workload.Instrument, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var response pb.ListInstrumentsResponse
	call := transports.Call{Operation: transports.ListInstruments, Request: &pb.ListInstrumentsRequest{}, Response: &response}
	if err := client.Do(ctx, &call); err != nil {
		return nil, fmt.Errorf("which instruments %s offers: %w", address, err)
	}
	var list []workload.Instrument
	for _, i := range response.Instruments {
		if i.State == pb.InstrumentState_INSTRUMENT_STATE_OPEN && len(list) < maxInstruments {
			list = append(list, workload.Instrument{Symbol: i.Symbol, ReferencePrice: i.ReferencePrice, MinNotional: i.MinNotional})
		}
	}
	return list, nil
}

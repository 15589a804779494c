package transports

import (
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
)

// Operation names one request-and-answer operation of OrderEntryService, or a step of a session. The numbers are part of the raw TCP
// protocol and never change.
type Operation uint16

// The operations of request and answer, which every transport offers.
const (
	SubmitOrder Operation = iota + 1
	ReplaceOrder
	CancelOrder
	MassCancel
	CancelAllAfter
	GetOrder
	ListOrders
	GetBook
	ListInstruments
	firstOfSession
)

// The operations of a session, for transports with streams. Logon and Logout are exchanges ([Session].Handle takes them); on raw TCP a
// request StreamExecutions asks for what [Session].Subscribe gives.
const (
	Logon Operation = firstOfSession + iota
	Logout
	StreamExecutions
	operationEnd
)

// Operations lists those of request and answer in the order of their numbers.
func Operations() []Operation {
	list := make([]Operation, 0, firstOfSession-1)
	for op := SubmitOrder; op < firstOfSession; op++ {
		list = append(list, op)
	}
	return list
}

var operationNames = [operationEnd]string{
	SubmitOrder: "SubmitOrder", ReplaceOrder: "ReplaceOrder", CancelOrder: "CancelOrder", MassCancel: "MassCancel",
	CancelAllAfter: "CancelAllAfter", GetOrder: "GetOrder", ListOrders: "ListOrders", GetBook: "GetBook",
	ListInstruments: "ListInstruments", Logon: "Logon", Logout: "Logout", StreamExecutions: "StreamExecutions",
}

// String is the method's name in the proto, "Operation(n)" would be a number that the contract does not have.
func (op Operation) String() string {
	if !op.Valid() {
		return "unknown operation"
	}
	return operationNames[op]
}

// Valid reports whether the contract has this operation.
func (op Operation) Valid() bool { return op > 0 && op < operationEnd }

// OfSession reports whether the operation is a step of a session and not one of request and answer.
func (op Operation) OfSession() bool { return op >= firstOfSession && op < operationEnd }

// NewRequest returns an empty request message, nil for an operation that the contract does not have.
func (op Operation) NewRequest() proto.Message {
	switch op {
	case SubmitOrder:
		return &pb.SubmitOrderRequest{}
	case ReplaceOrder:
		return &pb.ReplaceOrderRequest{}
	case CancelOrder:
		return &pb.CancelOrderRequest{}
	case MassCancel:
		return &pb.MassCancelRequest{}
	case CancelAllAfter:
		return &pb.CancelAllAfterRequest{}
	case GetOrder:
		return &pb.GetOrderRequest{}
	case ListOrders:
		return &pb.ListOrdersRequest{}
	case GetBook:
		return &pb.GetBookRequest{}
	case ListInstruments:
		return &pb.ListInstrumentsRequest{}
	case Logon:
		return &pb.Logon{}
	case Logout:
		return &pb.Logout{}
	case StreamExecutions:
		return &pb.StreamExecutionsRequest{}
	default:
		return nil
	}
}

// NewResponse returns an empty response message, nil for an operation that the contract does not have.
func (op Operation) NewResponse() proto.Message {
	switch op {
	case SubmitOrder:
		return &pb.SubmitOrderResponse{}
	case ReplaceOrder:
		return &pb.ReplaceOrderResponse{}
	case CancelOrder:
		return &pb.CancelOrderResponse{}
	case MassCancel:
		return &pb.MassCancelResponse{}
	case CancelAllAfter:
		return &pb.CancelAllAfterResponse{}
	case GetOrder:
		return &pb.GetOrderResponse{}
	case ListOrders:
		return &pb.ListOrdersResponse{}
	case GetBook:
		return &pb.GetBookResponse{}
	case ListInstruments:
		return &pb.ListInstrumentsResponse{}
	case Logon, StreamExecutions:
		return &pb.LogonAck{}
	case Logout:
		return &pb.Logout{}
	default:
		return nil
	}
}

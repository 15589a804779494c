package orders

import (
	"fmt"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// Answer is what an order, a replace or a cancel is answered with. Fields are those of proto orderentry.v1.SubmitOrderResponse.
type Answer struct {
	OrderID        uint64
	Status         pb.OrderStatus
	Reason         pb.Reason
	Quantity       uint64
	Filled         uint64
	Leaves         uint64
	LastPrice      int64
	FilledNotional int64
	Sequence       uint64 // 0 for a refusal that is not remembered
	Epoch          uint32
	Version        uint32
	Duplicate      bool
	ReceivedNs     int64

	Count        uint32 // orders canceled or expired, by commands about more than one
	TriggerNs    int64  // CancelAllAfter: when the timer fires now, 0 = disarmed
	Session      uint32 // Logon: number plus one of the session
	Incarnation  uint32 // Logon: which logon of the session this is
	NextSequence uint64 // Logon: number of the account's next event

	limit int64
	firm  bool // the limit is the firm's
}

// fill writes a first answer.
func (a *Answer) fill(first *answer, receivedNs int64) {
	// Field by field: a literal would be built beside it and copied.
	a.OrderID, a.Reason = 0, first.reason
	a.setQuantities(&first.quantities)
	a.Sequence, a.Epoch, a.Duplicate, a.ReceivedNs = first.sequence, first.epoch, false, receivedNs
	a.Count, a.TriggerNs, a.Session, a.Incarnation, a.NextSequence = 0, 0, 0, 0, 0
	a.limit, a.firm = first.limit, first.firm
}

// answerOrder writes an order's first answer.
func answerOrder(out *Answer, o *order) {
	out.fill(&o.first, o.receivedNs)
	out.OrderID = o.publicID()
}

func (a *Answer) setQuantities(q *quantities) {
	a.Status, a.Quantity, a.Filled, a.Leaves = q.status, q.quantity, q.filled, q.leaves
	a.LastPrice, a.FilledNotional, a.Version = q.lastPrice, q.notional, q.version
}

// refuse writes a refusal that is not remembered.
func (s *State) refuse(out *Answer, c *Command, reason pb.Reason) {
	*out = Answer{
		Status: pb.OrderStatus_ORDER_STATUS_REJECTED, Reason: reason, Epoch: s.epoch,
		ReceivedNs: c.ReceivedNs, limit: c.Verdict.Limit, firm: c.Verdict.Firm,
	}
}

// Text says for a person why the command got this answer, with the figures that met; empty unless it was refused. It is the same for
// a repetition. It allocates.
func (a *Answer) Text(c *Command) string {
	whose := "the account's"
	if a.firm {
		whose = "the firm's"
	}
	switch a.Reason {
	case pb.Reason_REASON_UNSPECIFIED:
		return ""
	case pb.Reason_REASON_UNKNOWN_SYMBOL:
		return fmt.Sprintf("no instrument has the symbol %s; ListInstruments names all", c.Symbol)
	case pb.Reason_REASON_KILL_SWITCH:
		return whose + " kill switch is engaged: nothing new is entered until it is lifted"
	case pb.Reason_REASON_RESTRICTED_SYMBOL:
		return whose + " limits do not allow this instrument"
	case pb.Reason_REASON_INSTRUMENT_NOT_OPEN:
		return "the instrument takes no orders now; ListInstruments shows its state"
	case pb.Reason_REASON_MAX_QUANTITY:
		return fmt.Sprintf("quantity %d is above %s limit of %d lots", c.Quantity, whose, a.limit)
	case pb.Reason_REASON_MAX_NOTIONAL:
		return fmt.Sprintf("%s x quantity %d is above %s notional limit of %d", priceOf(c), c.Quantity, whose, a.limit)
	case pb.Reason_REASON_MIN_NOTIONAL:
		return fmt.Sprintf("%s x quantity %d is below the least notional of %d", priceOf(c), c.Quantity, a.limit)
	case pb.Reason_REASON_PRICE_COLLAR:
		return fmt.Sprintf("price %d is outside %s price collar, which ends at %d", c.Price, whose, a.limit)
	case pb.Reason_REASON_MAX_OPEN_ORDERS:
		return fmt.Sprintf("with this order %s open orders would be more than its limit of %d", whose, a.limit)
	case pb.Reason_REASON_MAX_OPEN_NOTIONAL:
		return fmt.Sprintf("with this order %s open notional would be above its limit of %d", whose, a.limit)
	case pb.Reason_REASON_MAX_POSITION:
		return fmt.Sprintf("with this order, and everything open on its side filled, %s position would pass its limit of %d lots", whose, a.limit)
	default:
		return a.orderText(c)
	}
}

// orderText is Text for the order rules.
func (a *Answer) orderText(c *Command) string {
	switch a.Reason {
	case pb.Reason_REASON_DUPLICATE_ID:
		id := c.ClientOrderID
		if c.Kind != Submit {
			id = c.RequestID
		}
		return fmt.Sprintf("id %s was used before for something else; take another id", id)
	case pb.Reason_REASON_UNKNOWN_ORDER:
		return fmt.Sprintf("the account has no order %s", c.ClientOrderID)
	case pb.Reason_REASON_TOO_LATE:
		return fmt.Sprintf("order %s has ended: %d of %d lots filled", c.ClientOrderID, a.Filled, a.Quantity)
	case pb.Reason_REASON_QUANTITY_FILLED:
		return fmt.Sprintf("the new total of %d lots is not above the %d lots filled already", c.Quantity, a.limit)
	case pb.Reason_REASON_POST_ONLY_WOULD_TAKE:
		return "the order is post-only, and at its price it would take what rests"
	case pb.Reason_REASON_FILL_OR_KILL:
		return fmt.Sprintf("not all of %d lots can be filled at once", c.Quantity)
	case pb.Reason_REASON_MINIMUM_QUANTITY:
		return fmt.Sprintf("the minimum quantity of %d lots cannot be filled at once", c.MinimumQuantity)
	case pb.Reason_REASON_BOOK_FULL:
		return "the book holds as many orders or price levels as it may; cancel some, or take what rests"
	default:
		return a.Reason.String()
	}
}

// priceOf names the price that a notional was reckoned with.
func priceOf(c *Command) string {
	if c.Kind == Submit && c.Type == matching.Market {
		return "the worst price that the collar allows"
	}
	return fmt.Sprint("price ", c.Price)
}

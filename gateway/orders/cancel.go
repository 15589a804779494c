package orders

import (
	"fmt"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// selection says which of an account's open orders are meant.
type selection struct {
	instrument uint32 // number plus one, 0 = all
	side       matching.Side
	session    uint32 // number plus one, 0 = all
}

var everything selection

func (l selection) has(o *order) bool {
	return (l.instrument == 0 || o.instrument == l.instrument-1) && (l.side == 0 || o.side == l.side) &&
		(l.session == 0 || o.session == l.session)
}

// cancelOpen cancels open orders of an account in the order of their entry, and counts them.
func (s *State) cancelOpen(account uint32, l selection, reason pb.Reason) (count uint32, err error) {
	for link := s.accounts[account].firstOpen; link > 0; {
		o := s.today.orders.at(link - 1)
		link = o.nextOpen
		if !l.has(o) {
			continue
		}
		if err := s.cancelOrder(o, reason); err != nil {
			return count, err
		}
		count++
	}
	return count, nil
}

func (s *State) decideMassCancel(c *Command, out *Answer) (journal bool, err error) {
	if c.Side > matching.Sell {
		return false, fmt.Errorf("%w: side %d of a mass cancel", ErrInvalid, c.Side)
	}
	if done, err := s.repeated(c, out); done || err != nil {
		return false, err
	}
	if !c.Symbol.IsZero() {
		if _, known := s.bySymbol[c.Symbol]; !known {
			c.Verdict.Reason = pb.Reason_REASON_UNKNOWN_SYMBOL
			if c.RequestID.IsZero() {
				s.refuse(out, c, c.Verdict.Reason)
				out.Sequence = s.accounts[c.Account].events.length
				return false, nil
			}
		}
	}
	return true, nil
}

func (s *State) applyMassCancel(c *Command, out *Answer) error {
	l := selection{side: c.Side}
	first := answer{epoch: s.epoch, reason: c.Verdict.Reason}
	first.status = pb.OrderStatus_ORDER_STATUS_REJECTED
	var count uint32
	if c.Verdict.Reason == pb.Reason_REASON_UNSPECIFIED {
		first.status = pb.OrderStatus_ORDER_STATUS_CANCELED
		if !c.Symbol.IsZero() {
			number, known := s.bySymbol[c.Symbol]
			if !known {
				return fmt.Errorf("%w: instrument %s was never defined", ErrReplay, c.Symbol)
			}
			l.instrument = number + 1
		}
		var err error
		if count, err = s.cancelOpen(c.Account, l, pb.Reason_REASON_MASS_CANCEL); err != nil {
			return err
		}
	}
	first.sequence = s.accounts[c.Account].events.length
	if !c.RequestID.IsZero() {
		if int(s.today.requests.length) >= s.options.MaxIDs {
			return fmt.Errorf("%w: %w: it holds %d", ErrReplay, ErrIDsFull, s.options.MaxIDs)
		}
		s.addRequest(&request{
			requestID: c.RequestID, kind: c.Kind, symbol: c.Symbol, side: c.Side, account: c.Account,
			receivedNs: c.ReceivedNs, count: count, first: first,
		})
	}
	out.fill(&first, c.ReceivedNs)
	out.Count = count
	return nil
}

// decideTimer finds out whether the timer that fired is still the one that is armed.
func (s *State) decideTimer(c *Command, out *Answer) (journal bool, err error) {
	armed := s.accounts[c.Account].triggerNs
	*out = Answer{Epoch: s.epoch, ReceivedNs: c.ReceivedNs, TriggerNs: armed}
	return armed != 0 && armed == c.TriggerNs, nil
}

func (s *State) applyTimer(c *Command, out *Answer) (err error) {
	s.accounts[c.Account].triggerNs = 0
	out.Status = pb.OrderStatus_ORDER_STATUS_CANCELED
	out.Count, err = s.cancelOpen(c.Account, everything, pb.Reason_REASON_CANCEL_ALL_AFTER)
	return err
}

// Timer is an armed dead-man timer.
type Timer struct {
	Account   uint32
	TriggerNs int64 // nanoseconds since 1970
}

// Timers calls yield for each armed dead-man timer, by account. The state must not be changed meanwhile.
func (s *State) Timers(yield func(Timer) bool) {
	for number := range s.accounts {
		if t := s.accounts[number].triggerNs; t != 0 && !yield(Timer{uint32(number), t}) {
			return
		}
	}
}

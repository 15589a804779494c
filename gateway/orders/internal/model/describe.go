package model

import (
	"fmt"
	"strings"

	"tailgate/gateway/orders"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// Describe tells a command in one line for a person.
func Describe(c *orders.Command) string {
	switch c.Kind {
	case orders.Submit:
		return describeSubmit(c)
	case orders.Replace:
		return fmt.Sprintf("account %d replaces %s by %d @ %d (request %q)", c.Account, c.ClientOrderID, c.Quantity, c.Price, c.RequestID)
	case orders.Cancel:
		return fmt.Sprintf("account %d cancels %s (request %q)", c.Account, c.ClientOrderID, c.RequestID)
	case orders.MassCancel:
		return fmt.Sprintf("account %d mass-cancels symbol %q side %d (request %q)", c.Account, c.Symbol, c.Side, c.RequestID)
	case orders.DefineInstrument:
		return fmt.Sprintf("instrument %+v", *c.Instrument)
	case orders.DefineFirm:
		return "firm " + c.Name
	case orders.DefineAccount:
		return fmt.Sprintf("account %q of firm %q, group %q", c.Name, c.Firm, c.Group)
	case orders.SetLimits:
		return fmt.Sprintf("limits of %+v: %+v (configured %t)", c.Scope, *c.Limits, c.Configured)
	case orders.SetKillSwitch:
		return fmt.Sprintf("kill switch of %+v engaged %t", c.Scope, c.Engaged)
	case orders.CancelAllAfter:
		return fmt.Sprintf("account %d arms its timer for %d", c.Account, c.TriggerNs)
	case orders.FireTimer:
		return fmt.Sprintf("timer of account %d for %d fires", c.Account, c.TriggerNs)
	case orders.Logon:
		return fmt.Sprintf("account %d logs on as %s, %s", c.Account, c.SessionID, pb.DisconnectMode(c.DisconnectMode))
	case orders.Logout:
		return fmt.Sprintf("account %d logs session %d of incarnation %d out", c.Account, c.Session, c.Incarnation)
	case orders.ExpireSession:
		return fmt.Sprintf("session %d of account %d, incarnation %d, expires", c.Session, c.Account, c.Incarnation)
	case orders.EndDay:
		return "the day ends"
	}
	return fmt.Sprintf("%+v", *c)
}

func describeSubmit(c *orders.Command) string {
	var more strings.Builder
	if c.PostOnly {
		more.WriteString(" post-only")
	}
	if c.DisplayQuantity > 0 {
		fmt.Fprintf(&more, " display %d", c.DisplayQuantity)
	}
	if c.MinimumQuantity > 0 {
		fmt.Fprintf(&more, " minimum %d", c.MinimumQuantity)
	}
	if c.SelfTradePrevention > matching.AllowSelfTrade {
		fmt.Fprintf(&more, " %s", c.SelfTradePrevention)
	}
	if c.Session > 0 {
		fmt.Fprintf(&more, " session %d", c.Session)
	}
	return fmt.Sprintf("account %d submits %s: %s %d %s @ %d %s %s%s", c.Account, c.ClientOrderID, c.Side, c.Quantity, c.Symbol, c.Price, c.Type, c.TimeInForce, more.String())
}

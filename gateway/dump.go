package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"tailgate/gateway/journal"
	"tailgate/gateway/orders"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// dumpLine is one command of a journal as a line of JSON. What a kind does not have is left out; accounts and firms are numbers, as in
// the journal, given in the order of their definition from 0 on.
type dumpLine struct {
	LSN                 uint64       `json:"lsn"`
	Term                uint64       `json:"term,omitempty"`
	Time                string       `json:"time,omitempty"`
	Command             string       `json:"command"`
	Account             *uint32      `json:"account,omitempty"`
	ClientOrderID       string       `json:"client_order_id,omitempty"`
	RequestID           string       `json:"request_id,omitempty"`
	Symbol              string       `json:"symbol,omitempty"`
	Side                string       `json:"side,omitempty"`
	Type                string       `json:"type,omitempty"`
	TimeInForce         string       `json:"time_in_force,omitempty"`
	Quantity            uint64       `json:"quantity,omitempty"`
	Price               *int64       `json:"price,omitempty"`
	PostOnly            bool         `json:"post_only,omitempty"`
	SelfTradePrevention string       `json:"self_trade_prevention,omitempty"`
	DisplayQuantity     uint64       `json:"display_quantity,omitempty"`
	MinimumQuantity     uint64       `json:"minimum_quantity,omitempty"`
	Session             *uint32      `json:"session,omitempty"`
	SessionID           string       `json:"session_id,omitempty"`
	Incarnation         uint32       `json:"incarnation,omitempty"`
	DisconnectMode      string       `json:"disconnect_mode,omitempty"`
	Grace               string       `json:"grace,omitempty"`
	Trigger             string       `json:"trigger,omitempty"`
	Firm                *uint32      `json:"firm,omitempty"`
	Limits              *dumpLimits  `json:"limits,omitempty"`
	Configured          bool         `json:"configured,omitempty"`
	Engaged             *bool        `json:"engaged,omitempty"`
	Text                string       `json:"text,omitempty"`
	Instrument          *dumpListing `json:"instrument,omitempty"`
	Name                string       `json:"name,omitempty"`
	FirmName            string       `json:"firm_name,omitempty"`
	Group               string       `json:"group,omitempty"`
	Refused             string       `json:"refused,omitempty"` // why, where it was refused
	RefusedByFirm       bool         `json:"refused_by_firm,omitempty"`
	Limit               int64        `json:"limit,omitempty"` // the figure that refused it
	Bound               int64        `json:"bound,omitempty"` // market orders: the worst price to accept
}

// dumpListing is the definition of an instrument.
type dumpListing struct {
	TickNanos      uint64 `json:"tick_nanos"`
	LotSize        uint64 `json:"lot_size"`
	Currency       string `json:"currency"`
	State          string `json:"state"`
	MinNotional    int64  `json:"min_notional"`
	MaxNotional    int64  `json:"max_notional"`
	ReferencePrice int64  `json:"reference_price"`
}

// dumpLimits are limits by the names of proto orderentry.v1.Limits.
type dumpLimits struct {
	MaxQuantity       uint64          `json:"max_quantity"`
	MaxNotional       int64           `json:"max_notional"`
	PriceCollarBps    uint32          `json:"price_collar_bps"`
	MaxOpenOrders     uint32          `json:"max_open_orders"`
	MaxOpenNotional   int64           `json:"max_open_notional"`
	MaxPosition       uint64          `json:"max_position"`
	RestrictedSymbols []orders.Symbol `json:"restricted_symbols"`
	MaxOrderRate      uint32          `json:"max_order_rate"`
}

// dumpJournal prints the commands from one log sequence number to another (0 = the last one), one line of JSON each.
func dumpJournal(dir string, from, to uint64, stdout, stderr io.Writer) int {
	out := bufio.NewWriterSize(stdout, 64<<10)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	err := func() error {
		for entry, err := range journal.Entries(dir, nil, from) {
			if err != nil {
				return err
			}
			if to > 0 && entry.LSN > to {
				return nil
			}
			line, err := lineOf(&entry)
			if err != nil {
				return err
			}
			if err := encoder.Encode(line); err != nil {
				return err
			}
		}
		return nil
	}()
	if flushErr := out.Flush(); err == nil {
		err = flushErr
	}
	if err != nil {
		fmt.Fprintf(stderr, "gateway: journal %s: %v\n", dir, err)
		return exitFailure
	}
	return exitOK
}

func lineOf(entry *journal.Entry) (*dumpLine, error) {
	var c orders.Command
	if err := c.Decode(entry.Payload); err != nil {
		return nil, fmt.Errorf("log sequence number %d: %w", entry.LSN, err)
	}
	line := &dumpLine{
		LSN: entry.LSN, Term: entry.Term, Time: timeOf(entry.TimeNs), Command: c.Kind.String(),
		ClientOrderID: c.ClientOrderID.String(), RequestID: c.RequestID.String(), Symbol: c.Symbol.String(), Quantity: c.Quantity,
		PostOnly: c.PostOnly, DisplayQuantity: c.DisplayQuantity, MinimumQuantity: c.MinimumQuantity,
		SessionID: c.SessionID.String(), Incarnation: c.Incarnation, Trigger: timeOf(c.TriggerNs),
		Configured: c.Configured, Text: c.Text, Name: c.Name, FirmName: c.Firm, Group: c.Group,
		RefusedByFirm: c.Verdict.Firm, Limit: c.Verdict.Limit, Bound: c.Verdict.Bound,
	}
	if c.Verdict.Reason != pb.Reason_REASON_UNSPECIFIED {
		line.Refused = c.Verdict.Reason.String()
	}
	if c.Session > 0 {
		number := c.Session - 1
		line.Session = &number
	}
	switch c.Kind {
	case orders.DefineInstrument:
		d := c.Instrument
		line.Symbol = d.Symbol.String()
		line.Instrument = &dumpListing{
			TickNanos: d.TickNanos, LotSize: d.LotSize, Currency: d.Currency, State: d.State.String(),
			MinNotional: d.MinNotional, MaxNotional: d.MaxNotional, ReferencePrice: d.ReferencePrice,
		}
	case orders.DefineAccount, orders.DefineFirm, orders.EndDay:
	case orders.SetLimits, orders.SetKillSwitch:
		if c.Scope.Firm {
			line.Firm = &c.Scope.Number
		} else {
			line.Account = &c.Scope.Number
		}
		if c.Kind == orders.SetKillSwitch {
			line.Engaged = &c.Engaged
		}
		if l := c.Limits; l != nil {
			line.Limits = &dumpLimits{
				MaxQuantity: l.MaxQuantity, MaxNotional: l.MaxNotional, PriceCollarBps: l.PriceCollarBps, MaxOpenOrders: l.MaxOpenOrders,
				MaxOpenNotional: l.MaxOpenNotional, MaxPosition: l.MaxPosition, RestrictedSymbols: l.Restricted, MaxOrderRate: l.MaxOrderRate,
			}
		}
	default:
		line.Account = &c.Account
		line.describe(&c)
	}
	return line, nil
}

// describe adds what an account's command has of its own.
func (line *dumpLine) describe(c *orders.Command) {
	switch c.Kind {
	case orders.Submit:
		line.Type, line.TimeInForce, line.Price = pb.OrderType(c.Type).String(), pb.TimeInForce(c.TimeInForce).String(), &c.Price
		line.Side = pb.Side(c.Side).String()
		if c.SelfTradePrevention > matching.AllowSelfTrade {
			line.SelfTradePrevention = pb.SelfTradePrevention(c.SelfTradePrevention).String()
		}
	case orders.Replace:
		line.Price = &c.Price
	case orders.MassCancel:
		if c.Side != 0 {
			line.Side = pb.Side(c.Side).String()
		}
	case orders.Logon:
		line.DisconnectMode, line.Grace = pb.DisconnectMode(c.DisconnectMode).String(), time.Duration(c.GraceNs).String()
	default: // what all commands have says it
	}
}

func timeOf(ns int64) string {
	if ns == 0 {
		return ""
	}
	return time.Unix(0, ns).UTC().Format(time.RFC3339Nano)
}

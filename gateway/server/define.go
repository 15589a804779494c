package server

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"tailgate/gateway/entry"
	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// define journals what the configuration has and the state does not have like that yet: instruments, firms, accounts and their limits.
// It returns whose key is whose.
func (s *Server) define() (map[entry.KeyHash]entry.Key, error) {
	if err := s.defineInstruments(); err != nil {
		return nil, err
	}
	if err := s.closeUnlisted(); err != nil {
		return nil, err
	}
	accounts := slices.Clone(s.config.Accounts)
	if len(accounts) == 0 {
		accounts = []Account{{Name: entry.DemoAccount}}
	}
	for i := range accounts {
		a := &accounts[i]
		if a.Firm == "" {
			a.Firm = a.Name
		}
		if a.Group == "" {
			a.Group = a.Firm
		}
	}
	if err := s.defineFirms(accounts); err != nil {
		return nil, err
	}
	for i := range accounts {
		if err := s.defineAccount(&accounts[i]); err != nil {
			return nil, err
		}
	}
	s.warnOfDoors(accounts)
	return s.keys()
}

// warnOfDoors says what nobody can reach any more, or never could.
func (s *Server) warnOfDoors(accounts []Account) {
	if len(s.config.Accounts) > 0 && len(s.config.Admin.Keys) == 0 && !s.config.Admin.Disabled {
		s.logger.Warn("accounts are configured and no administrator's key is: nobody can reach the kill switch; set admin.keys")
	}
	configured := make(map[string]bool)
	for i := range accounts {
		configured[accounts[i].Name] = true
	}
	open := make(map[string]uint32)
	s.sequencer.Read(func(state *orders.State, _ uint64) {
		for number := range uint32(state.Usage().Accounts) {
			open[state.AccountName(number)] = state.Exposure(orders.Scope{Number: number}).OpenOrders
		}
	})
	for _, name := range slices.Sorted(maps.Keys(open)) {
		if open[name] > 0 && !configured[name] {
			s.logger.Warn("an account that is no longer configured has open orders, which can trade; gateway admin kill-switch --engage cancels them",
				"account", name, "open_orders", open[name])
		}
	}
}

// defineInstruments journals the listings that are new or have changed.
func (s *Server) defineInstruments() error {
	for i := range s.config.Instruments {
		definition, err := instrumentOf(&s.config.Instruments[i])
		if err != nil {
			return err
		}
		var known orders.Instrument
		var ok bool
		s.sequencer.Read(func(state *orders.State, _ uint64) { known, ok = state.Instrument(definition.Symbol) })
		definition.Version = known.Version
		if ok && known == definition {
			continue
		}
		if err := s.execute(&orders.Command{Kind: orders.DefineInstrument, Instrument: &definition}); err != nil {
			return fmt.Errorf("define instrument %s: %w", definition.Symbol, err)
		}
	}
	return nil
}

// defineFirms journals the firms that are new, with the limits that the configuration has for them; a firm that it gives none has no
// bounds from it.
func (s *Server) defineFirms(accounts []Account) error {
	limits := make(map[string]Limits)
	for i := range s.config.Firms {
		limits[s.config.Firms[i].Name] = s.config.Firms[i].Limits
	}
	for i := range accounts {
		if _, configured := limits[accounts[i].Firm]; !configured {
			limits[accounts[i].Firm] = Limits{}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		number, known := s.firm(name)
		if !known {
			if err := s.execute(&orders.Command{Kind: orders.DefineFirm, Name: name}); err != nil {
				return fmt.Errorf("define firm %s: %w", name, err)
			}
			number, _ = s.firm(name)
		}
		if err := s.setLimits(orders.Scope{Firm: true, Number: number}, limits[name]); err != nil {
			return fmt.Errorf("limits of firm %s: %w", name, err)
		}
	}
	return nil
}

// defineAccount journals an account that is new or belongs elsewhere now, and its limits.
func (s *Server) defineAccount(a *Account) error {
	number, known := s.account(a.Name)
	firm, group := "", ""
	if known {
		s.sequencer.Read(func(state *orders.State, _ uint64) { firm, group = state.Membership(number) })
	}
	if !known || firm != a.Firm || group != a.Group {
		if err := s.execute(&orders.Command{Kind: orders.DefineAccount, Name: a.Name, Firm: a.Firm, Group: a.Group}); err != nil {
			return fmt.Errorf("define account %s: %w", a.Name, err)
		}
		number, _ = s.account(a.Name)
	}
	limits := s.config.Limits
	if a.Limits != nil {
		limits = *a.Limits
	}
	if err := s.setLimits(orders.Scope{Number: number}, limits); err != nil {
		return fmt.Errorf("limits of account %s: %w", a.Name, err)
	}
	return nil
}

// setLimits journals limits of the configuration, unless they are those that it had when they were set last: what an administrator has set
// since then stays.
func (s *Server) setLimits(scope orders.Scope, c Limits) error {
	limits, _ := c.Orders() // Validate has found nothing wrong with them
	same := false
	s.sequencer.Read(func(state *orders.State, _ uint64) {
		configured := state.ConfiguredLimits(scope)
		same = configured.Equal(&limits)
	})
	if same {
		return nil
	}
	return s.execute(&orders.Command{Kind: orders.SetLimits, Scope: scope, Limits: &limits, Configured: true})
}

// keys are the keys of the configuration with what they may do.
func (s *Server) keys() (map[entry.KeyHash]entry.Key, error) {
	keys := make(map[entry.KeyHash]entry.Key)
	add := func(k entry.Key, hashes ...string) error {
		for _, text := range hashes {
			hash, err := entry.ParseKeyHash(text)
			if err != nil {
				return fmt.Errorf("key of %s: %w", k.Name, err)
			}
			keys[hash] = k
		}
		return nil
	}
	var errs []error
	for _, a := range s.config.Accounts {
		number, _ := s.account(a.Name)
		errs = append(errs, add(entry.Key{Name: a.Name, Role: entry.Trade, Account: number}, a.KeySHA256...))
	}
	for _, d := range s.config.DropCopies {
		k := entry.Key{Name: d.Name, Role: entry.DropCopy}
		for _, name := range d.Accounts {
			number, _ := s.account(name) // Validate has found it among the accounts
			k.Accounts = append(k.Accounts, number)
		}
		errs = append(errs, add(k, d.KeySHA256...))
	}
	for _, a := range s.config.Admin.Keys {
		errs = append(errs, add(entry.Key{Name: a.Name, Role: entry.Admin}, a.KeySHA256))
	}
	return keys, errors.Join(errs...)
}

// closeUnlisted closes the instruments that the journal has and the configuration no longer lists: their orders can be canceled, and
// nothing new trades.
func (s *Server) closeUnlisted() error {
	listed := make(map[string]bool)
	for _, i := range s.config.Instruments {
		listed[i.Symbol] = true
	}
	var known []orders.Instrument
	s.sequencer.Read(func(state *orders.State, _ uint64) { known = state.Instruments(nil) })
	for _, definition := range known {
		if listed[definition.Symbol.String()] || definition.State == pb.InstrumentState_INSTRUMENT_STATE_CLOSED {
			continue
		}
		definition.State = pb.InstrumentState_INSTRUMENT_STATE_CLOSED
		if err := s.execute(&orders.Command{Kind: orders.DefineInstrument, Instrument: &definition}); err != nil {
			return fmt.Errorf("close instrument %s: %w", definition.Symbol, err)
		}
		s.logger.Warn("instrument is no longer configured: closed", "symbol", definition.Symbol.String())
	}
	return nil
}

func (s *Server) account(name string) (number uint32, ok bool) {
	s.sequencer.Read(func(state *orders.State, _ uint64) { number, ok = state.Account(name) })
	return number, ok
}

func (s *Server) firm(name string) (number uint32, ok bool) {
	s.sequencer.Read(func(state *orders.State, _ uint64) { number, ok = state.Firm(name) })
	return number, ok
}

func (s *Server) execute(c *orders.Command) error {
	c.ReceivedNs = transports.Now()
	var answer orders.Answer
	return s.sequencer.Execute(c, &answer)
}

var instrumentStates = map[string]pb.InstrumentState{
	"open":   pb.InstrumentState_INSTRUMENT_STATE_OPEN,
	"halted": pb.InstrumentState_INSTRUMENT_STATE_HALTED,
	"closed": pb.InstrumentState_INSTRUMENT_STATE_CLOSED,
}

func instrumentOf(c *Instrument) (orders.Instrument, error) {
	symbol, ok := orders.ParseSymbol(c.Symbol)
	if !ok {
		return orders.Instrument{}, fmt.Errorf("symbol %q is not 1 to %d of [A-Z0-9._-]", c.Symbol, orders.MaxSymbolBytes)
	}
	return orders.Instrument{
		Symbol: symbol, TickNanos: c.TickNanos, LotSize: c.LotSize, Currency: c.Currency, State: instrumentStates[c.State],
		MinNotional: c.MinNotional, MaxNotional: c.MaxNotional, ReferencePrice: c.ReferencePrice,
	}, nil
}

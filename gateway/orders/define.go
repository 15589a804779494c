package orders

import (
	"fmt"
	"slices"

	pb "tailgate/proto/gen/orderentry/v1"
)

func (s *State) decideInstrument(definition *Instrument) (journal bool, err error) {
	if _, known := s.bySymbol[definition.Symbol]; !known && len(s.instruments) == MaxInstruments {
		return false, fmt.Errorf("%w: %d instruments are defined already, those that are no longer configured included", ErrDefinition, MaxInstruments)
	}
	return true, nil
}

func (s *State) applyInstrument(definition *Instrument) error {
	number, known := s.bySymbol[definition.Symbol]
	if !known {
		number = uint32(len(s.instruments))
		if err := s.engine.AddInstrument(number); err != nil {
			return fmt.Errorf("%w: %w", ErrReplay, err)
		}
		s.instruments = append(s.instruments, instrument{})
		s.bySymbol[definition.Symbol] = number
		s.restrictNew(number, definition.Symbol)
	}
	i := &s.instruments[number]
	version := i.Version + 1
	i.Instrument = *definition
	i.Version = version
	return nil
}

// restrictNew looks for limits that named an instrument before it was defined.
func (s *State) restrictNew(number uint32, symbol Symbol) {
	look := func(r *risk) {
		if _, found := slices.BinarySearchFunc(r.limits.Restricted, symbol, Symbol.Compare); found {
			r.restrict(number)
		}
	}
	for i := range s.accounts {
		look(&s.accounts[i].risk)
	}
	for i := range s.firms {
		look(&s.firms[i].risk)
	}
}

func (r *risk) restrict(instrument uint32) {
	if r.restricted == nil {
		r.restricted = make([]uint64, (MaxInstruments+63)/64)
	}
	r.restricted[instrument/64] |= 1 << (instrument % 64)
}

func (s *State) decideAccount(c *Command) (journal bool, err error) {
	firm, ok := s.firmLink(c.Firm)
	number, known := s.accountNumber[c.Name]
	group, grouped := s.groupNumber[c.Group]
	switch {
	case c.Name == "" || len(c.Name) > MaxIDBytes || len(c.Group) > MaxIDBytes:
		return false, fmt.Errorf("%w: account %q of group %q: a name has 1 to %d bytes", ErrDefinition, c.Name, c.Group, MaxIDBytes)
	case !ok:
		return false, fmt.Errorf("%w: account %s: firm %q is not defined; define it first", ErrDefinition, c.Name, c.Firm)
	case c.Group != "" && !grouped && len(s.groups) == MaxGroups:
		return false, fmt.Errorf("%w: %d account groups are defined already, those that are no longer configured included", ErrDefinition, MaxGroups)
	case !known && len(s.accounts) == MaxAccounts:
		return false, fmt.Errorf("%w: %d accounts are defined already, those that are no longer configured included", ErrDefinition, MaxAccounts)
	case !known:
		return true, nil
	}
	a := &s.accounts[number]
	if a.firm == firm && (c.Group == "" && a.group == 0 || grouped && a.group == group+1) {
		return false, fmt.Errorf("%w: account %s is defined already, with this firm and group", ErrDefinition, c.Name)
	}
	if firm != 0 && firm != a.firm && !s.firms[firm-1].risk.fits(&a.risk) {
		return false, fmt.Errorf("%w: account %s: what firm %s would have open or hold with it does not fit 63 bits", ErrDefinition, c.Name, c.Firm)
	}
	return true, nil
}

// firmLink is a firm's number plus one, 0 for no name.
func (s *State) firmLink(name string) (link uint32, ok bool) {
	if name == "" {
		return 0, true
	}
	number, ok := s.firmNumber[name]
	return number + 1, ok
}

func (s *State) applyAccount(c *Command) error {
	firm, ok := s.firmLink(c.Firm)
	if !ok || c.Name == "" {
		return fmt.Errorf("%w: account %q of firm %q, which was never defined", ErrReplay, c.Name, c.Firm)
	}
	number, known := s.accountNumber[c.Name]
	if !known {
		if len(s.accounts) == MaxAccounts {
			return fmt.Errorf("%w: account %q is one more than %d", ErrReplay, c.Name, MaxAccounts)
		}
		number = uint32(len(s.accounts))
		s.accountNumber[c.Name] = number
		s.accounts = append(s.accounts, account{name: c.Name})
	}
	a := &s.accounts[number]
	if a.firm != firm {
		s.moveExposure(a, firm)
		a.firm = firm
	}
	a.group = 0
	if c.Group != "" {
		group, known := s.groupNumber[c.Group]
		if !known {
			group = uint32(len(s.groups))
			s.groups = append(s.groups, c.Group)
			s.groupNumber[c.Group] = group
		}
		a.group = group + 1
	}
	return nil
}

func (s *State) decideFirm(name string) (journal bool, err error) {
	if _, known := s.firmNumber[name]; known || name == "" || len(name) > MaxIDBytes {
		return false, fmt.Errorf("%w: firm %q is defined already, or its name has not 1 to %d bytes", ErrDefinition, name, MaxIDBytes)
	}
	if len(s.firms) == MaxFirms {
		return false, fmt.Errorf("%w: %d firms are defined already, those that are no longer configured included", ErrDefinition, MaxFirms)
	}
	return true, nil
}

func (s *State) applyFirm(name string) error {
	if _, known := s.firmNumber[name]; known || name == "" || len(s.firms) == MaxFirms {
		return fmt.Errorf("%w: firm %q defined twice, empty, or more than %d firms", ErrReplay, name, MaxFirms)
	}
	s.firmNumber[name] = uint32(len(s.firms))
	s.firms = append(s.firms, firm{name: name})
	return nil
}

// riskOf returns a scope's part of the checks, or nil where there is no such firm or account.
func (s *State) riskOf(scope Scope) *risk {
	switch {
	case scope.Firm && int(scope.Number) < len(s.firms):
		return &s.firms[scope.Number].risk
	case !scope.Firm && int(scope.Number) < len(s.accounts):
		return &s.accounts[scope.Number].risk
	}
	return nil
}

func (s *State) decideLimits(c *Command) (journal bool, err error) {
	if s.riskOf(c.Scope) == nil {
		return false, fmt.Errorf("%w: limits of %+v, which is not defined", ErrDefinition, c.Scope)
	}
	if c.Limits == nil {
		return false, fmt.Errorf("%w: no limits given", ErrDefinition)
	}
	if err := c.Limits.Validate(); err != nil {
		return false, err
	}
	return true, nil
}

func (s *State) applyLimits(c *Command) error {
	r := s.riskOf(c.Scope)
	if r == nil || c.Limits == nil {
		return fmt.Errorf("%w: limits of %+v, which is not defined, or none", ErrReplay, c.Scope)
	}
	r.limits = c.Limits.clone()
	if c.Configured {
		r.configured = c.Limits.clone()
	}
	s.findRestricted(r)
	return nil
}

// findRestricted looks the restricted symbols up.
func (s *State) findRestricted(r *risk) {
	r.restricted = nil
	for _, symbol := range r.limits.Restricted {
		if number, known := s.bySymbol[symbol]; known {
			r.restrict(number)
		}
	}
}

func (s *State) decideKillSwitch(c *Command) (journal bool, err error) {
	if s.riskOf(c.Scope) == nil {
		return false, fmt.Errorf("%w: kill switch of %+v, which is not defined", ErrDefinition, c.Scope)
	}
	if len(c.Text) > MaxTextBytes {
		return false, fmt.Errorf("%w: the text has %d bytes, allowed are %d", ErrDefinition, len(c.Text), MaxTextBytes)
	}
	return true, nil
}

// applyKillSwitch sets the switch and, when it is engaged, cancels what rests: account by account, each in the order of entry.
func (s *State) applyKillSwitch(c *Command, out *Answer) error {
	r := s.riskOf(c.Scope)
	if r == nil {
		return fmt.Errorf("%w: kill switch of %+v, which is not defined", ErrReplay, c.Scope)
	}
	r.killed = c.Engaged
	if !c.Engaged {
		return nil
	}
	for number := range s.accounts {
		if c.Scope.Firm && s.accounts[number].firm != c.Scope.Number+1 || !c.Scope.Firm && uint32(number) != c.Scope.Number {
			continue
		}
		count, err := s.cancelOpen(uint32(number), everything, pb.Reason_REASON_KILL_SWITCH)
		if err != nil {
			return err
		}
		out.Count += count
	}
	return nil
}

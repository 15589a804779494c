package orders

func (s *State) applyEndDay(out *Answer) error { return errNotYet }

package credit

// What a notice can be about; a share may have several.
const (
	noticeGranted uint32 = 1 << iota
	noticeReclaim
	noticeViolated
)

// notices are the shares that one call has to tell something, once the pool's lock is given back. They are linked through the shares, so that a call allocates
// nothing.
type notices struct{ first, last *Share }

// add is called with the pool's lock, after the change that it is about. A share that another goroutine is about to tell something is left to that: it takes what
// there is to tell, and only then looks at what has changed.
func (n *notices) add(s *Share, what uint32) {
	if s.pending.Or(what) != 0 {
		return
	}
	s.behind = nil
	if n.last == nil {
		n.first = s
	} else {
		n.last.behind = s
	}
	n.last = s
}

// deliver is called without the pool's lock.
func (n *notices) deliver() {
	for s := n.first; s != nil; {
		next := s.behind // the share is free for another list once its notices are taken
		s.behind = nil
		what := s.pending.Swap(0)
		if what&noticeGranted != 0 {
			s.told.Granted()
		}
		if what&noticeReclaim != 0 {
			s.told.Reclaim(s.ask.Load())
		}
		if what&noticeViolated != 0 {
			s.told.Violated(s.broken)
		}
		s = next
	}
}

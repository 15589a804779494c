package journal

import (
	"errors"
	"fmt"
	"iter"
)

// ReadFrom calls visit for each entry from LSN from to LSN to, in order. It takes no
// lock and changes nothing; beside the process that writes, to must not be above what
// Committed returned (under SyncOff: above what is written, see Journal.ReadFrom). Of
// segments only those that hold the range are read, each from its beginning on, because
// a record is found by the one before it. It holds 256 KiB. An error of visit ends it
// and is returned as it is. A nil fs is the real one.
//
// Errors: ErrPruned (the log begins above from), *DamageError, an error that says where
// the log ends if that is before to.
func ReadFrom(dir string, fs FS, from, to uint64, visit func(Entry) error) error {
	if from == 0 || to < from {
		return fmt.Errorf("journal: read from LSN %d to %d: LSNs begin at 1, and the last one is not before the first", from, to)
	}
	return readRange(dir, fs, from, to, visit)
}

// ReadFrom is the function ReadFrom on this journal's folder, for any to that was
// appended: it writes first what is not written yet.
func (j *Journal) ReadFrom(from, to uint64, visit func(Entry) error) error {
	if last := j.appended.Load(); to > last {
		return fmt.Errorf("journal: read to LSN %d: the last one is %d", to, last)
	}
	if err := j.writeThrough(to); err != nil {
		return err
	}
	return ReadFrom(j.opts.Dir, j.fs, from, to, visit)
}

// Entries are the entries of the log from LSN from on, 0 for all that are left, to the
// end of what can be read: a torn tail ends them without an error, as it ends a replay
// (Verify tells of it). Anything else that ends them early comes as the last pair, with
// an empty Entry. Like Verify it takes no lock and changes nothing. A nil fs is the real
// one.
func Entries(dir string, fs FS, from uint64) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		enough := errors.New("the reader has enough")
		err := readRange(dir, fs, from, 0, func(e Entry) error {
			if !yield(e, nil) {
				return enough
			}
			return nil
		})
		if err != nil && !errors.Is(err, enough) {
			yield(Entry{}, err)
		}
	}
}

// readRange visits the entries from LSN from, 0 for the first, to LSN to, 0 for the end.
func readRange(dir string, fs FS, from, to uint64, visit func(Entry) error) error {
	if fs == nil {
		fs = osFS{}
	}
	s := scan{fs: fs, dir: dir, visit: visit, live: true}
	if err := s.list(); err != nil {
		return err
	}
	if from == 0 {
		from = s.first
	}
	if from < s.first {
		return fmt.Errorf("%w: %s begins with LSN %d, and LSN %d was asked for", ErrPruned, dir, s.first, from)
	}
	s.start = from - 1
	if to != 0 {
		s.limit = to + 1
	}
	if err := s.run(); err != nil {
		return err
	}
	if s.report.LastLSN < to {
		return fmt.Errorf("journal: the log in %s ends with LSN %d, and LSN %d was asked for", dir, s.report.LastLSN, to)
	}
	return nil
}

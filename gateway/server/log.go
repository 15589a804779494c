package server

import (
	"context"
	"io"

	"tailgate/gateway/journal"
	"tailgate/transports"
)

// journalLog makes a journal the sequencer's Log: the two packages do not know each other.
type journalLog struct {
	*journal.Journal

	// until ends the snapshots that are begun later, at their next write; nil = nothing does but the journal's Close.
	until context.Context //nolint:containedctx // sequencer.Log has no context to hand on, since nothing else of a log waits
}

// Commit implements sequencer.Log.
func (l *journalLog) Commit(r transports.Releaser, mark uint64) { l.Journal.Commit(r, mark) }

// Snapshot implements sequencer.Log.
func (l *journalLog) Snapshot(lsn uint64, write func(w io.Writer) error) error {
	if l.until == nil {
		return l.Journal.Snapshot(lsn, write)
	}
	return l.Journal.Snapshot(lsn, func(w io.Writer) error {
		return write(writerFunc(func(p []byte) (int, error) {
			if err := l.until.Err(); err != nil {
				return 0, err
			}
			return w.Write(p)
		}))
	})
}

// until makes a restore end with ctx, at its next read.
func until(ctx context.Context, restore func(lsn uint64, r io.Reader) error) func(lsn uint64, r io.Reader) error {
	return func(lsn uint64, r io.Reader) error {
		return restore(lsn, readerFunc(func(p []byte) (int, error) {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			return r.Read(p)
		}))
	}
}

type readerFunc func(p []byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type writerFunc func(p []byte) (int, error)

// Write implements io.Writer.
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

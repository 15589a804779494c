package journal

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// Errors of the running log. Append returns them as they are or wrapped, so
// compare with errors.Is.
var (
	// ErrBacklog: the entry was not taken, because the writer is behind by
	// MaxPendingBytes, or the next segment is not prepared yet. It passes by
	// itself: refuse the request as not processed and go on.
	ErrBacklog = errors.New("journal: the writer is behind")
	// ErrFull: the entry was not taken, because there is no space for the next
	// segment. The journal tries again every spaceRetry; entries are taken
	// again when space is back. Until then it is the answer to all that would be an
	// entry, cancels and administration too, and nothing acked is lost (see "A full
	// disk" in the package comment).
	ErrFull = errors.New("journal: no space for the next segment")
	// ErrFailed: a write or a sync failed. Nothing more is taken or released
	// without an error until the process is restarted and the log read again.
	ErrFailed = errors.New("journal: failed, nothing more is acked; repair the disk and restart")
	// ErrClosed: Append after Close.
	ErrClosed = errors.New("journal: closed")
	// ErrTooLarge: the payload is larger than MaxPayloadBytes, or the batch than its
	// bound (see AppendBatch).
	ErrTooLarge = errors.New("journal: payload too large")
	// ErrPruned: ReadFrom was asked for entries that only snapshots hold any more.
	ErrPruned = errors.New("journal: entries were pruned")
)

// Errors of opening.
var (
	// ErrLocked: another process has this folder open.
	ErrLocked = errors.New("journal: folder is in use")
	// ErrDamaged: a record that may have been acked cannot be read; the error
	// is a *DamageError.
	ErrDamaged = errors.New("journal: damaged")
	// ErrNewer: a file of the log has a format version above what this program reads. It
	// is not damaged, nothing is changed, and Cut refuses it too: the program that wrote
	// it, or a later one, opens it.
	ErrNewer = errors.New("journal: written by a newer version of this program")
	// ErrTerm: the log has a later term than its writer, who has been replaced and
	// must not write (the fence). Open says it, and Append after Fence.
	ErrTerm = errors.New("journal: term is behind the log")
)

// SyncMode says what Commit waits for. The zero value is SyncOS.
type SyncMode uint8

// The modes; their numbers are part of the file format.
const (
	// SyncOS releases when the record is in the page cache: nothing acked is
	// lost when the process dies.
	SyncOS SyncMode = 0
	// SyncOff releases at once and writes in the background: no promise.
	SyncOff SyncMode = 1
	// SyncAlways releases after fdatasync: nothing acked is lost when the power
	// goes.
	SyncAlways SyncMode = 2
)

func (m SyncMode) valid() bool { return m <= SyncAlways }

// String returns off, os or always.
func (m SyncMode) String() string {
	switch m {
	case SyncOS:
		return "os"
	case SyncOff:
		return "off"
	case SyncAlways:
		return "always"
	}
	return fmt.Sprintf("SyncMode(%d)", uint8(m))
}

// ParseSyncMode is the inverse of String.
func ParseSyncMode(s string) (SyncMode, error) {
	for m := SyncOS; m.valid(); m++ {
		if s == m.String() {
			return m, nil
		}
	}
	return 0, fmt.Errorf("journal: sync mode %q is not one of off, os, always", s)
}

// MarshalText writes the mode as String does.
func (m SyncMode) MarshalText() ([]byte, error) {
	if !m.valid() {
		return nil, fmt.Errorf("journal: no such sync mode: %d", uint8(m))
	}
	return []byte(m.String()), nil
}

// UnmarshalText reads off, os or always.
func (m *SyncMode) UnmarshalText(text []byte) error {
	parsed, err := ParseSyncMode(string(text))
	if err == nil {
		*m = parsed
	}
	return err
}

// Defaults and bounds of Options.
const (
	DefaultSegmentBytes = 64 << 20
	MinSegmentBytes     = 128 << 10
	MaxSegmentBytes     = 1 << 30

	DefaultMaxPendingBytes = 16 << 20
	MinMaxPendingBytes     = 256 << 10
	MaxMaxPendingBytes     = 1 << 30
)

// spaceRetry is how often a journal without space for its next segment tries
// again. A failed try costs one fallocate.
const spaceRetry = 250 * time.Millisecond

// Options configure Open. The zero value of every field but Dir is usable.
type Options struct {
	// Dir is the folder of the log; it is created. One process at a time.
	Dir string
	// Sync is what Commit waits for. Zero is SyncOS. It may differ from the mode
	// the log was written with before.
	Sync SyncMode
	// SegmentBytes is the size of a segment in bytes, preallocated.
	// MinSegmentBytes to MaxSegmentBytes, zero is DefaultSegmentBytes. One more
	// segment than used is kept ready.
	SegmentBytes int64
	// MaxPendingBytes bounds the bytes that are appended and not yet written;
	// half of it is the most that one write takes. It is allocated at Open.
	// MinMaxPendingBytes to MaxMaxPendingBytes, zero is DefaultMaxPendingBytes.
	MaxPendingBytes int
	// Term is written into each record. It must not be below the last one in
	// the log. Zero is the term of a log without replication.
	Term uint64
	// Restore, when set, is called at most once, by Open, before the first entry is
	// replayed, with the content of the newest snapshot that is whole: the state up to
	// lsn, as Snapshot was given it. All of its checksums were right when it is called,
	// and r checks each once more and fails rather than give a wrong byte. r is valid
	// during the call only; it holds one block of 64 KiB. An error ends Open and is
	// returned as it is. Nil: snapshots are not used, and a log whose beginning was
	// pruned is refused.
	Restore func(lsn uint64, r io.Reader) error
	// KeepSegments keeps the segments that snapshots have made needless, for those who
	// want to read everything again. Unset, Snapshot removes the segments wholly below
	// the older one of the two snapshots it keeps.
	KeepSegments bool
	// FS is the file system, nil the real one.
	FS FS
	// Logger gets one line for a cut tail, a full disk, space that is back and a
	// failure. Nil logs nothing.
	Logger *slog.Logger
	// OnSync, when set, gets the duration of every fdatasync of a group commit
	// (SyncAlways only). It runs on the syncing goroutine and must not block.
	OnSync func(time.Duration)
}

// withDefaults returns o with every zero replaced, or says what is out of bounds.
func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("journal: Dir is empty: name the folder of the log")
	}
	if !o.Sync.valid() {
		return o, fmt.Errorf("journal: no such sync mode: %d", uint8(o.Sync))
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.SegmentBytes < MinSegmentBytes || o.SegmentBytes > MaxSegmentBytes {
		return o, fmt.Errorf("journal: SegmentBytes %d is not between %d and %d", o.SegmentBytes, MinSegmentBytes, MaxSegmentBytes)
	}
	if o.MaxPendingBytes == 0 {
		o.MaxPendingBytes = DefaultMaxPendingBytes
	}
	if o.MaxPendingBytes < MinMaxPendingBytes || o.MaxPendingBytes > MaxMaxPendingBytes {
		return o, fmt.Errorf("journal: MaxPendingBytes %d is not between %d and %d", o.MaxPendingBytes, MinMaxPendingBytes, MaxMaxPendingBytes)
	}
	if o.FS == nil {
		o.FS = osFS{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

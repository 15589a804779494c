// Package journal is an ordered, durable log of opaque payloads: what the
// sequencer appends, in the order it appends it, comes back on replay, to the
// byte, or the start is refused with the place of the damage.
//
// It knows neither what a payload means nor who asked for it: no orders, no
// sessions, no transports, no clock (the caller brings the time). It decides
// three things only: where a record lies, when it is as durable as the mode
// promises, and what of a crashed log may be believed.
//
// # Life of a record
//
// Append encodes a record into memory and gives it the next log sequence number
// (LSN: 1, 2, 3, ... without a gap). Commit arranges that the caller's Waiter is
// released once everything appended before is as durable as the mode promises.
//
//	SyncOff     released at once; a background goroutine writes. No promise.
//	SyncOS      released when write(2) has returned: in the page cache, so nothing
//	            released is lost when the process dies.
//	SyncAlways  released when fdatasync(2) has returned: nothing released is lost
//	            when the power goes. One goroutine syncs; all that came while it
//	            was syncing shares the next sync (group commit).
//
// In every mode the size of a segment is synced before it gets its name, its content
// when the log has moved on to the next one, and Close syncs everything.
//
// Locks, in the order they may be taken: snapMu, flushMu, bufMu; noteMu after snapMu and
// flushMu. Append takes only bufMu, which is never held across a system call.
//
// # Snapshots
//
// A log that only grows makes every start longer than the last. Snapshot keeps what the
// entries up to some LSN lead to; Open begins with the newest one that is whole and
// replays what is above it. What a snapshot means is the caller's, as with payloads.
// It is made beside the running log, by reading entries back (ReadFrom), so that nobody
// who appends waits for it: gateway/adr/0003-snapshots.md has the reasons.
//
// The two newest snapshots are kept, and segments wholly below the older one are removed,
// unless Options.KeepSegments. So whatever happens to one snapshot, the other and the log
// above it give the same.
//
// A snapshot that cannot be written (a full disk, an error of its own file) is an error of
// Snapshot only: the log has everything. An error that leaves open what of the log is on
// the disk (the sync before the snapshot, the folder's, the state's) is final, as ever.
//
// # A full disk
//
// The next segment is allocated before it is needed, so a disk without space for one is
// known while the current one still takes entries (Stats.NoSpace, and a line in the log).
// When that is full, Append refuses with ErrFull. Nothing acked is lost: what was appended
// has its place, is written and released. As soon as there is space for a segment, which
// is tried every 250 ms, entries are taken again without a restart. (A file system that
// copies on write may have no space for a write in a place that is allocated: that is
// ErrFailed.)
//
// Until then everything that would be an entry is refused, cancels, kill switches and other
// administration like new orders: the log does not know what a payload means, and none of
// them may have an effect that the next start does not find. There is no reserve for them,
// because any would be used up in its turn.
//
// The log does not free itself: a prune comes after a new snapshot, which needs space, and
// STATE says what goes before it goes, which needs some on a file system that copies on
// write. Where a snapshot fits and a segment does not, a snapshot makes room if segments lie
// below the one before it; in all other cases room comes from outside: a larger volume, or
// other files removed. Removing files of the log makes it damaged. So the volume holds two snapshots, a third that is
// being written, the segments since the older of the two and one prepared, and somebody is
// called before it is full.
//
// # A second implementation
//
// What the sequencer needs of a log is small on purpose (its interface is in
// gateway/sequencer), so that a replicated log can stand in for this one. It must promise:
//
//   - Append and AppendBatch give LSNs 1, 2, 3, ... without a gap, in the order of the
//     calls, do not block, and copy. An error means that nothing of it is, or ever will be,
//     in the log. What they took may still be lost, of a batch the end of it too, as long as
//     no Commit has released it: after a change of leaders the log ends earlier, and the one
//     who applied more than that starts again from a snapshot.
//   - Release(mark, nil) means that everything appended before that Commit is in the log
//     for good, for every later reader, whoever writes by then. In doubt it is an error.
//     The Releases of one Waiter come in the order of its Commits.
//   - Committed never goes back, and is not above what every later reader will see. It may
//     be ahead of the Releases, never behind.
//   - Term rises whenever another writer may have written, and then Append of the old one
//     gives ErrTerm: no two writers append in one term. Entries keep the term they were
//     appended in, and terms never fall along the log.
//   - Err is final: once it is set, nothing is taken. What was taken before is released, with
//     an error unless it is in the log for good. A writer that has lost the lead has one.
//   - Snapshot takes a state that is the fold of exactly the entries up to its LSN, which is
//     any that was appended: it commits that one first, and if that cannot be, it is an
//     error, write is not called, and nothing is kept. Any member may begin with any member's snapshot: so the content
//     must depend on the entries only.
//
// # Format
//
// The log is a folder of segments named by their first LSN in 20 decimal digits
// ("00000000000000000001.seg"), snapshots named by the LSN up to which they go
// ("00000000000000000042.snap"), a LOCK file, a STATE file, prepared segments that
// carry no record yet ("prepared-N.tmp"), and a snapshot that is being written
// ("snapshot.tmp"). What has one of these names and is no regular file is refused. The
// file of a snapshot is described in internal/snapfile. All integers are little endian; CRC32C is the Castagnoli
// polynomial (RFC 3720, appendix B.4).
//
// A segment begins with 64 bytes:
//
//	 0   8  magic "TGJRNL\r\n"
//	 8   1  format version (1)
//	 9   1  sync mode under which it was written (0 os, 1 off, 2 always)
//	10   2  zero
//	12   4  salt, random: every CRC of a record of this segment starts from it
//	16   8  LSN of its first record
//	24   8  term under which it was begun
//	32   8  durable mark when it was begun
//	40  16  identity of the journal, random, drawn when the folder was first used
//	56   4  size of the file in bytes when it got its name
//	60   4  CRC32C of bytes 0 to 59
//
// Records follow without padding, 44 bytes and the payload:
//
//	 0   4  CRC32C of bytes 4 to the end of the payload, starting from the salt
//	 4   1  format version (1)
//	 5   1  kind (1 entry, 2 close mark)
//	 6   2  zero
//	 8   4  payload length, at most MaxPayloadBytes
//	12   8  LSN (of a close mark: of the last entry before it)
//	20   8  term
//	28   8  time in nanoseconds, as the caller gave it
//	36   8  durable mark when it was appended
//
// What follows the last record is zero, because a segment is allocated as zeros
// and never used twice. The salt keeps bytes of a payload, or of another segment,
// from being taken for a record of this one, and so binds the records to the header
// with the identity.
//
// STATE says what must be there at least, because a log cannot show that its own end
// is missing. It has 8192 bytes: two notes, at 0 and 4096, zeros between. A note has
// its place by its number modulo 2, so that writing the next one leaves the last one
// alone; the valid note with the highest number counts. A note is 80 bytes:
//
//	 0   8  magic "TGJSTA\r\n"
//	 8   1  format version (2)
//	 9   7  zero
//	16  16  identity of the journal
//	32   8  number of the note, from 1
//	40   8  first LSN of the newest segment in use, 0 for none
//	48   4  bytes that its file has at least
//	52   8  durable mark
//	60   8  LSN the log begins with: 1, or the first LSN of the oldest segment not pruned
//	68   8  term below which no writer may open the log
//	76   4  CRC32C of bytes 0 to 75
//
// A note is written, and synced, when all it says is on the disk: before the first
// segment, by Open and Cut before they cut anything, soon after a segment got its name
// (in the background), by Snapshot before it removes anything, by Fence, and by Close.
// The file itself is created whole, under another name (STATE.tmp).
//
// # Versions
//
// A note of version 1 is read as well: 64 bytes, without the fields at 60 and 68 (the log
// begins with 1, the term is 0), and with the CRC32C of bytes 0 to 59 at 60; or 80 bytes,
// as version 2. What Open and Cut write is version 2, first in the place of the note that
// does not count: a crash in between leaves the other as it was. From then on a program
// that knows version 1 only does not open the folder. Segments, records and snapshots
// have had one version so far.
//
// Whoever changes the format raises the version of each kind of file that differs in a
// byte, records and their segment together, and leaves the magic and the place of the
// version where they are. So what is newer than a program is told from damage: it is
// ErrNewer, nothing is read of it, cut or removed. One rotted version byte is damage: with
// the right one in its place the checksum holds.
//
// # What a crash may leave, and what is believed
//
// The durable mark is the highest LSN known to have reached the disk. It is
// raised only after fdatasync has returned, so a record that says "mark 41" proves
// that LSN 41 and everything below was on the disk before. Let E be the LSN that
// should begin where reading stopped, and D the highest mark in STATE and in any valid
// header of this journal, those behind the damage included, and the LSN of its newest
// snapshot, which is written only when the log has reached the disk up to it.
//
//   - E <= D: the record was on the disk and is not there now. This is damage, not
//     a crash. Open stops in every mode.
//   - E > D and no valid record behind the damage: the torn tail of a crash. It is
//     cut, and the report says where and how much.
//   - E > D with valid records behind it, in a segment written under SyncAlways: a
//     power cut may land pages in any order. No record above D was released (the
//     mark of the next group would have said so), except those of the very last
//     group. Cut, and the report says how many whole records went with it.
//   - The same under SyncOS or SyncOff: a dying process tears a write only at its
//     end, so records behind the damage prove that the damaged one was written and
//     perhaps released. Open stops. After a power cut these modes promise nothing,
//     and the operator, not the journal, decides to give records up (see Cut).
//   - A segment header that is not valid, with anything but zeros behind it, or of a
//     segment that STATE knows: Open stops. Under SyncAlways a segment is synced
//     before it gets its name, under the others a dying process writes header and
//     records in this order.
//   - A valid header with the identity of another journal, or of another place in
//     this one: the file comes from elsewhere. Open stops.
//   - The newest segment is shorter than STATE says, or, if STATE does not know it
//     yet, than its header does: Open stops. No crash shortens a file, because its
//     size is on the disk before its name, and STATE before a cut.
//   - A segment that STATE knows is not there: Open stops.
//   - The first segment is another than STATE says: Open stops. STATE says where the log
//     begins before anything is pruned; segments below that are leftovers of a prune that
//     did not come to its end, and are not read, whatever they look like.
//   - A snapshot whose header or any block is not right, or that is of another journal or
//     LSN: it does not count, the report says so, and the older one or the whole log
//     stands in for it. If neither is there, Open stops.
//   - Segments below the snapshot that Open begins with are not read: damage in them is
//     for Verify to find. The segment that holds the snapshot's LSN is.
//   - STATE is missing, or without a valid note, in a folder with a segment: Open
//     stops, because nobody knows whether the end is still there.
//
// After a power cut under SyncOS and SyncOff these rules may stop an Open whose
// newest segment lost its header; that is right, because what it held was released.
//
// The limits of the argument:
//
//   - A record that rots after a crash and before the next record, Close or Open has
//     confirmed it (only the last group of a log that was not closed) cannot be told
//     from a torn one. It is cut and said. If such records become zeros to the end of
//     the file, nothing is there to be said.
//   - A segment that vanishes, or becomes all zeros, after its process has died in the
//     moment between its name and the note, is missed unless D says so: after a power
//     cut under SyncOS or SyncOff the log may look so.
//   - A snapshot that vanishes is not missed as long as the other one, or the whole log,
//     is there: nothing is lost with it.
//   - An empty folder is a new one. A whole folder put in the place of another one, or
//     an older copy of this one, STATE included, is a log of its own.
//   - Both notes are trusted alike: where the last one rots, the one before serves,
//     which may know of a segment less.
package journal

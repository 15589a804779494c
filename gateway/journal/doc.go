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
// Locks, in the order they may be taken: flushMu, then bufMu. Append takes only
// bufMu, which is never held across a system call.
//
// # Format
//
// The log is a folder of segments named by their first LSN in 20 decimal digits
// ("00000000000000000001.seg"), a LOCK file, a STATE file, and prepared segments that
// carry no record yet ("prepared-N.tmp"). What has one of these names and is no
// regular file is refused. All integers are little endian; CRC32C is the Castagnoli
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
// alone; the valid note with the highest number counts. A note is 64 bytes:
//
//	 0   8  magic "TGJSTA\r\n"
//	 8   1  format version (1)
//	 9   7  zero
//	16  16  identity of the journal
//	32   8  number of the note, from 1
//	40   8  first LSN of the newest segment in use, 0 for none
//	48   4  bytes that its file has at least
//	52   8  durable mark
//	60   4  CRC32C of bytes 0 to 59
//
// A note is written, and synced, when all it says is on the disk: before the first
// segment, by Open and Cut before they cut anything, soon after a segment got its name
// (in the background), and by Close. The file itself is created whole, under another
// name (STATE.tmp).
//
// # What a crash may leave, and what is believed
//
// The durable mark is the highest LSN known to have reached the disk. It is
// raised only after fdatasync has returned, so a record that says "mark 41" proves
// that LSN 41 and everything below was on the disk before. Let E be the LSN that
// should begin where reading stopped, and D the highest mark in STATE and in any valid
// header of this journal, those behind the damage included.
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
//   - An empty folder is a new one. A whole folder put in the place of another one, or
//     an older copy of this one, STATE included, is a log of its own.
//   - Both notes are trusted alike: where the last one rots, the one before serves,
//     which may know of a segment less.
package journal

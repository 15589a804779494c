// Package journaltest lets a test stand between a journal and its disk: a file system in
// memory that shows what is left when a process dies or the power goes at any call, and
// that fails the calls a test names.
//
// It is for tests only, of the journal and of all that is built on it: give a Disk to
// journal.Options.FS, do something, take Killed or PowerCut as the disk of the next
// process, and look whether all is there that was promised. It knows files and folders;
// it must never know what a journal writes into them.
//
//	disk := journaltest.NewDisk()
//	failure := &journaltest.Failure{N: 3, Ops: []journaltest.Op{journaltest.Sync}}
//	disk.Intercept(failure.Before)
//	... run something on it whose third fsync fails ...
//	disk.Intercept(nil)
//	... open what disk.Killed(nil, 0) or disk.PowerCut(rng) has left ...
//
// The model of a power cut: of what was written since the last sync of a file each page
// of 4096 bytes may be there, not, or in part, in any order (a page is torn at sectors of
// 512 bytes, a sector at a byte); a new size may be there or not; of the names changed
// since the last sync of their folder any may be as they were before. What was synced is
// there.
package journaltest

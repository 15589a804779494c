package journaltest

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"tailgate/gateway/journal"
)

const (
	pageBytes   = 4096
	sectorBytes = 512
)

// Op is a kind of call that may change something.
type Op string

// The calls that Intercept sees. Reading is not among them.
const (
	Create   Op = "create"
	Rename   Op = "rename"
	Remove   Op = "remove"
	SyncDir  Op = "syncdir"
	Write    Op = "write"
	Allocate Op = "allocate"
	Sync     Op = "sync"
	Truncate Op = "truncate"
	Close    Op = "close"
)

// Call is a call of the file system, before it is done.
type Call struct {
	N    int // how many there were with it, from 1
	Op   Op
	Path string // the name the file has at the moment; of a rename the old one
	Data []byte // of a write; valid during the call
	Off  int64  // of a write
}

// Fault is what a call does instead of its work.
type Fault struct {
	Err  error
	Kept int // bytes that a write has taken before the error
}

// Disk is a file system in memory, a journal.FS, that keeps apart what the kernel shows
// and what the disk holds, so that both the death of a process and a power cut can be
// played, and that can fail any call. Its zero value is not usable. Safe for concurrent
// use.
//
// A sync that fails drops what it should have written and calls it clean, as Linux does:
// the kernel shows it from then on, and the disk never gets it.
type Disk struct {
	mu     sync.Mutex
	names  map[string]*inode // as the kernel shows them
	stable map[string]*inode // as the disk has them
	moves  []move            // names changed since their folder was synced
	locked map[string]bool
	space  int64 // bytes that may still be allocated, or written behind the end of a file
	calls  int
	before func(Call) *Fault
}

type inode struct {
	data      []byte // as the kernel shows it
	disk      []byte // as the disk has it
	dirty     map[int]bool
	dirtySize bool
}

// move is one change of names: path now means node, nil for none.
type move []struct {
	path string
	node *inode
}

// NewDisk returns an empty disk with a tebibyte of space.
func NewDisk() *Disk {
	return &Disk{names: map[string]*inode{}, stable: map[string]*inode{}, locked: map[string]bool{}, space: 1 << 40}
}

// Intercept makes before be called ahead of every call that may change something, and
// returns the one it replaces; nil calls nothing. A fault that it returns happens instead
// of the call. It runs without a lock, on the goroutine of the call, and several may run
// at once. It may use the disk, Killed and PowerCut above all: they show the moment
// before the call.
func (fs *Disk) Intercept(before func(Call) *Fault) func(Call) *Fault {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	old := fs.before
	fs.before = before
	return old
}

// SetSpace makes n the bytes by which files may still grow; below zero, none may.
func (fs *Disk) SetSpace(n int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.space = n
}

// AddSpace frees n bytes, or takes them.
func (fs *Disk) AddSpace(n int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.space += n
}

func (fs *Disk) enter(op Op, path string, data []byte, off int64) *Fault {
	fs.mu.Lock()
	fs.calls++
	n, before := fs.calls, fs.before
	fs.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(Call{n, op, path, data, off})
}

func (fs *Disk) rename(changes move) {
	for _, c := range changes {
		if c.node == nil {
			delete(fs.names, c.path)
		} else {
			fs.names[c.path] = c.node
		}
	}
	fs.moves = append(fs.moves, changes)
}

func applyMoves(names map[string]*inode, moves []move) {
	for _, m := range moves {
		for _, c := range m {
			if c.node == nil {
				delete(names, c.path)
			} else {
				names[c.path] = c.node
			}
		}
	}
}

// MkdirAll implements journal.FS: folders are there already.
func (fs *Disk) MkdirAll(string) error { return nil }

// List implements journal.FS.
func (fs *Disk) List(dir string) ([]string, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var names []string
	for path := range fs.names {
		if filepath.Dir(path) == filepath.Clean(dir) {
			names = append(names, filepath.Base(path))
		}
	}
	return names, nil
}

// Create implements journal.FS.
func (fs *Disk) Create(path string) (journal.File, error) {
	if f := fs.enter(Create, path, nil, 0); f != nil {
		return nil, f.Err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	node := &inode{dirty: map[int]bool{}}
	fs.rename(move{{path, node}})
	return &memFile{fs, path, node}, nil
}

// Open implements journal.FS.
func (fs *Disk) Open(path string, write bool) (journal.File, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	node := fs.names[path]
	if node == nil {
		return nil, fmt.Errorf("open %s: %w", path, syscall.ENOENT)
	}
	return &memFile{fs, path, node}, nil
}

// Rename implements journal.FS.
func (fs *Disk) Rename(oldpath, newpath string) error {
	if f := fs.enter(Rename, oldpath, nil, 0); f != nil {
		return f.Err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	node := fs.names[oldpath]
	if node == nil {
		return fmt.Errorf("rename %s: %w", oldpath, syscall.ENOENT)
	}
	if old := fs.names[newpath]; old != nil {
		fs.space += int64(len(old.data))
	}
	fs.rename(move{{oldpath, nil}, {newpath, node}})
	return nil
}

// Remove implements journal.FS.
func (fs *Disk) Remove(path string) error {
	if f := fs.enter(Remove, path, nil, 0); f != nil {
		return f.Err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	node := fs.names[path]
	if node == nil {
		return fmt.Errorf("remove %s: %w", path, syscall.ENOENT)
	}
	fs.space += int64(len(node.data))
	fs.rename(move{{path, nil}})
	return nil
}

// SyncDir implements journal.FS.
func (fs *Disk) SyncDir(dir string) error {
	if f := fs.enter(SyncDir, dir, nil, 0); f != nil {
		return f.Err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var others []move
	for _, m := range fs.moves {
		if filepath.Dir(m[0].path) == filepath.Clean(dir) {
			applyMoves(fs.stable, []move{m})
		} else {
			others = append(others, m)
		}
	}
	fs.moves = others
	return nil
}

type memLock struct {
	fs   *Disk
	path string
}

func (l memLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locked, l.path)
	return nil
}

// Lock implements journal.FS.
func (fs *Disk) Lock(path string) (io.Closer, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.locked[path] {
		return nil, journal.ErrLocked
	}
	fs.locked[path] = true
	return memLock{fs, path}, nil
}

type memFile struct {
	fs   *Disk
	path string // by which it was opened
	node *inode
}

// enter is Disk.enter by the name that the file has now.
func (f *memFile) enter(op Op, data []byte, off int64) *Fault {
	f.fs.mu.Lock()
	path := f.path
	for name, node := range f.fs.names {
		if node == f.node {
			path = name
		}
	}
	f.fs.mu.Unlock()
	return f.fs.enter(op, path, data, off)
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	kept, err := len(p), error(nil)
	if fault := f.enter(Write, p, off); fault != nil {
		kept, err = min(fault.Kept, len(p)), fault.Err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if more := off + int64(kept) - int64(len(f.node.data)); more > 0 {
		if more > f.fs.space {
			return 0, fmt.Errorf("write %s: %w", f.path, syscall.ENOSPC)
		}
		f.fs.space -= more
	}
	f.node.write(p[:kept], off)
	return kept, err
}

func (n *inode) write(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	end := int(off) + len(p)
	if end > len(n.data) {
		n.data = append(n.data, make([]byte, end-len(n.data))...)
		n.dirtySize = true
	}
	copy(n.data[off:], p)
	for page := int(off) / pageBytes; page*pageBytes < end; page++ {
		n.dirty[page] = true
	}
}

func (f *memFile) Allocate(size int64) error {
	if fault := f.enter(Allocate, nil, 0); fault != nil {
		return fault.Err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if size > f.fs.space {
		return fmt.Errorf("fallocate %s: %w", f.path, syscall.ENOSPC)
	}
	f.fs.space -= size
	f.node.data = make([]byte, size)
	f.node.dirtySize = true
	return nil
}

func (f *memFile) Sync() error {
	fault := f.enter(Sync, nil, 0)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if fault != nil {
		// As Linux does it: the pages are dropped and count as clean from now on.
		clear(f.node.dirty)
		return fault.Err
	}
	f.node.disk = resize(f.node.disk, len(f.node.data))
	f.node.dirtySize = false
	for page := range f.node.dirty {
		copyRange(f.node.disk, f.node.data, page*pageBytes, (page+1)*pageBytes)
	}
	clear(f.node.dirty)
	return nil
}

func (f *memFile) Truncate(size int64) error {
	if fault := f.enter(Truncate, nil, 0); fault != nil {
		return fault.Err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.space += int64(len(f.node.data)) - size
	f.node.data = resize(f.node.data, int(size))
	f.node.dirtySize = true
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.node.data)), nil
}

func (f *memFile) Close() error {
	if fault := f.enter(Close, nil, 0); fault != nil {
		return fault.Err
	}
	return nil
}

// Killed returns the file system that a new process finds after this one has died:
// everything the kernel shows, and of the write c, if given, the first kept bytes. It
// shares nothing with this one; its space is the one of NewDisk.
func (fs *Disk) Killed(c *Call, kept int) *Disk {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	after := NewDisk()
	copies := map[*inode]*inode{nil: nil}
	clone := func(node *inode) *inode {
		if copies[node] == nil && node != nil {
			copies[node] = &inode{data: slices.Clone(node.data), disk: slices.Clone(node.disk),
				dirty: maps.Clone(node.dirty), dirtySize: node.dirtySize}
		}
		return copies[node]
	}
	for path, node := range fs.names {
		after.names[path] = clone(node)
		if c != nil && c.Op == Write && c.Path == path {
			after.names[path].write(c.Data[:kept], c.Off)
		}
	}
	for path, node := range fs.stable {
		after.stable[path] = clone(node)
	}
	for _, m := range fs.moves {
		m = slices.Clone(m)
		for i := range m {
			m[i].node = clone(m[i].node)
		}
		after.moves = append(after.moves, m)
	}
	return after
}

// PowerCut returns what is left when the power goes: what was synced, and of the
// rest any part. Pages land in any order, a page is torn at sectors, a sector at a
// byte; of the names that were not synced any may be missing.
// The same rng gives the same cut.
func (fs *Disk) PowerCut(rng *rand.Rand) *Disk {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	names := maps.Clone(fs.stable)
	var lost []string
	for _, m := range fs.moves {
		// Any change may be lost, and then every later one of the same names too.
		dropped := rng.IntN(2) == 0
		for _, c := range m {
			dropped = dropped || slices.Contains(lost, c.path)
		}
		for _, c := range m {
			if dropped {
				lost = append(lost, c.path)
			}
		}
		if !dropped {
			applyMoves(names, []move{m})
		}
	}
	after := NewDisk()
	for _, path := range slices.Sorted(maps.Keys(names)) {
		node := names[path]
		size := len(node.disk)
		if node.dirtySize && rng.IntN(2) == 0 {
			size = len(node.data)
		}
		disk := resize(slices.Clone(node.disk), size)
		for _, page := range slices.Sorted(maps.Keys(node.dirty)) {
			from, to := page*pageBytes, (page+1)*pageBytes
			switch rng.IntN(4) {
			case 0: // lost
			case 1:
				copyRange(disk, node.data, from, to)
			case 2:
				for s := from; s < to; s += sectorBytes {
					if rng.IntN(2) == 0 {
						copyRange(disk, node.data, s, s+sectorBytes)
					}
				}
			case 3:
				copyRange(disk, node.data, from, from+rng.IntN(pageBytes))
			}
		}
		after.names[path] = &inode{data: slices.Clone(disk), disk: disk, dirty: map[int]bool{}}
	}
	after.stable = maps.Clone(after.names)
	return after
}

// resize cuts b or fills it up with zeros.
func resize(b []byte, n int) []byte {
	if n <= len(b) {
		return b[:n:n]
	}
	return append(slices.Clip(b), make([]byte, n-len(b))...)
}

func copyRange(dst, src []byte, from, to int) {
	to = min(to, len(dst), len(src))
	if from < to {
		copy(dst[from:to], src[from:to])
	}
}

// Paths returns the paths of all files, in order; with a suffix, of those that end so.
func (fs *Disk) Paths(suffix string) []string {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var paths []string
	for path := range fs.names {
		if strings.HasSuffix(path, suffix) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// Content returns the bytes of path as the kernel shows them. They may be changed in
// place, while nobody uses the disk: that is how a file rots.
func (fs *Disk) Content(path string) []byte {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.names[path].data
}

// Stored returns the bytes of path as the disk has them, to be changed as those of
// Content.
func (fs *Disk) Stored(path string) []byte {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.names[path].disk
}

// SetContent makes data the content of path, on the disk too, creating it if need be, so
// that no power cut brings back what was there.
func (fs *Disk) SetContent(path string, data []byte) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	node := &inode{data: data, disk: slices.Clone(data), dirty: map[int]bool{}}
	fs.names[path], fs.stable[path] = node, node
	for _, m := range fs.moves {
		for i := range m {
			if m[i].path == path && m[i].node != nil {
				m[i].node = node
			}
		}
	}
}

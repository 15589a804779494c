package journal_test

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

// memFS is a file system in memory that keeps apart what the kernel shows and
// what the disk holds, so that both a dying process and a power cut can be
// played. It can fail any call.
type memFS struct {
	mu     sync.Mutex
	names  map[string]*inode // as the kernel shows them
	stable map[string]*inode // as the disk has them
	moves  []move            // names changed since the last SyncDir
	locked map[string]bool
	space  int64 // bytes that may still be allocated
	calls  int

	// before, when set, is called ahead of every call that may change something,
	// without the mutex. A fault it returns happens instead of the call.
	before func(call) *fault
}

type call struct {
	n    int // from 1
	op   string
	path string
	data []byte // of a write
	off  int64
}

// fault is what a call does instead. A write with kept > 0 has taken that many
// bytes before the error.
type fault struct {
	err  error
	kept int
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

func newMemFS() *memFS {
	return &memFS{names: map[string]*inode{}, stable: map[string]*inode{}, locked: map[string]bool{}, space: 1 << 40}
}

// intercept sets before and returns the one it replaces.
func (fs *memFS) intercept(before func(call) *fault) func(call) *fault {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	old := fs.before
	fs.before = before
	return old
}

func (fs *memFS) enter(op, path string, data []byte, off int64) *fault {
	fs.mu.Lock()
	fs.calls++
	n, before := fs.calls, fs.before
	fs.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(call{n, op, path, data, off})
}

func (fs *memFS) rename(changes move) {
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

func (fs *memFS) MkdirAll(string) error { return nil }

func (fs *memFS) List(dir string) ([]string, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var names []string
	for path := range fs.names {
		names = append(names, filepath.Base(path))
	}
	return names, nil
}

func (fs *memFS) Create(path string) (journal.File, error) {
	if f := fs.enter("create", path, nil, 0); f != nil {
		return nil, f.err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	node := &inode{dirty: map[int]bool{}}
	fs.rename(move{{path, node}})
	return &memFile{fs, path, node}, nil
}

func (fs *memFS) Open(path string, write bool) (journal.File, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	node := fs.names[path]
	if node == nil {
		return nil, fmt.Errorf("open %s: %w", path, syscall.ENOENT)
	}
	return &memFile{fs, path, node}, nil
}

func (fs *memFS) Rename(oldpath, newpath string) error {
	if f := fs.enter("rename", oldpath, nil, 0); f != nil {
		return f.err
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

func (fs *memFS) Remove(path string) error {
	if f := fs.enter("remove", path, nil, 0); f != nil {
		return f.err
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

func (fs *memFS) SyncDir(dir string) error {
	if f := fs.enter("syncdir", dir, nil, 0); f != nil {
		return f.err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	applyMoves(fs.stable, fs.moves)
	fs.moves = nil
	return nil
}

type memLock struct {
	fs   *memFS
	path string
}

func (l memLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locked, l.path)
	return nil
}

func (fs *memFS) Lock(path string) (io.Closer, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.locked[path] {
		return nil, journal.ErrLocked
	}
	fs.locked[path] = true
	return memLock{fs, path}, nil
}

type memFile struct {
	fs   *memFS
	path string
	node *inode
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
	if fault := f.fs.enter("write", f.path, p, off); fault != nil {
		kept, err = min(fault.kept, len(p)), fault.err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
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
	if fault := f.fs.enter("allocate", f.path, nil, 0); fault != nil {
		return fault.err
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
	fault := f.fs.enter("sync", f.path, nil, 0)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if fault != nil {
		// As Linux does it: the pages are dropped and count as clean from now on.
		clear(f.node.dirty)
		return fault.err
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
	if fault := f.fs.enter("truncate", f.path, nil, 0); fault != nil {
		return fault.err
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
	if fault := f.fs.enter("close", f.path, nil, 0); fault != nil {
		return fault.err
	}
	return nil
}

// killed returns the file system a new process finds after this one has died:
// everything the kernel shows, and of the write c, if given, the first kept bytes.
func (fs *memFS) killed(c *call, kept int) *memFS {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	after := newMemFS()
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
		if c != nil && c.op == "write" && c.path == path {
			after.names[path].write(c.data[:kept], c.off)
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

// powerCut returns what is left when the power goes: what was synced, and of the
// rest any part. Pages land in any order, a page is torn at sectors, a sector at a
// byte; of the names that were not synced any may be missing.
func (fs *memFS) powerCut(rng *rand.Rand) *memFS {
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
	after := newMemFS()
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

// segments returns the paths of the segments, in order.
func (fs *memFS) segments() []string {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var paths []string
	for path := range fs.names {
		if strings.HasSuffix(path, ".seg") {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// content returns the bytes of path, which may be changed in place.
func (fs *memFS) content(path string) []byte {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.names[path].data
}

func (fs *memFS) setContent(path string, data []byte) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.names[path] = &inode{data: data, disk: slices.Clone(data), dirty: map[int]bool{}}
}

package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// FS is the little the journal needs of a file system, so that a test can stand
// between it and the disk. Implementations must be safe for concurrent use.
// Errors must keep the errno (errors.Is with syscall.ENOSPC decides between
// "full" and "failed").
type FS interface {
	// MkdirAll creates dir and its parents, durably.
	MkdirAll(dir string) error
	// List returns the names (without dir) of the files in dir, in any order.
	List(dir string) ([]string, error)
	// Create creates path for reading and writing; an existing file is emptied.
	Create(path string) (File, error)
	// Open opens an existing file, for writing too when write is set. What is no
	// regular file is refused at once: a named pipe would hold its reader for good.
	Open(path string, write bool) (File, error)
	// Rename replaces newpath with oldpath, atomically.
	Rename(oldpath, newpath string) error
	Remove(path string) error
	// SyncDir makes the names in dir durable.
	SyncDir(dir string) error
	// Lock takes the exclusive lock file path, or fails with ErrLocked at once.
	// Closing the result, or the end of the process, gives it back.
	Lock(path string) (io.Closer, error)
}

// File is an open file of an FS.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Allocate makes an empty file size bytes of zeros whose later writes need
	// no more space.
	Allocate(size int64) error
	// Sync makes content and size durable (fdatasync). After an error the state
	// of the content is unknown.
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)
}

// osFS is the real file system.
type osFS struct{}

func (osFS) MkdirAll(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil || filepath.Dir(d) == d {
			break
		}
		missing = append(missing, d)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	// A new folder is durable when the folder that names it is synced.
	for _, d := range missing {
		if err := (osFS{}).SyncDir(filepath.Dir(d)); err != nil {
			return err
		}
	}
	return nil
}

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

func (osFS) Create(path string) (File, error) {
	f, err := openRegular(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Open(path string, write bool) (File, error) {
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	f, err := openRegular(path, flag)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// openRegular opens path, or says what stands there instead of a regular file.
// Without O_NONBLOCK the open of a named pipe waits for its other end.
func openRegular(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|unix.O_NONBLOCK, 0o640)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file (mode %v): move it away", path, info.Mode())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (osFS) Rename(oldpath, newpath string) error { return os.Rename(oldpath, newpath) }

func (osFS) Remove(path string) error { return os.Remove(path) }

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) Lock(path string) (io.Closer, error) {
	f, err := openRegular(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			var holder [20]byte
			n, _ := f.ReadAt(holder[:], 0)
			return nil, fmt.Errorf("%w: %s is held by process %q: stop it, or give this one a folder of its own",
				ErrLocked, path, strings.TrimSpace(string(holder[:n])))
		}
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	// The number is for the message above only; the lock is the kernel's, so a
	// full disk need not stop us here.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	return f, nil
}

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// fillZeros writes size zeros: the allocation for file systems without fallocate.
func fillZeros(f io.WriterAt, size int64) error {
	zeros := make([]byte, 256<<10)
	for off := int64(0); off < size; off += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off); err != nil {
			return err
		}
	}
	return nil
}

// outOfSpace reports whether err says that the disk, or the quota, is full.
func outOfSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

//go:build unix && !linux

package journal

// Allocate writes zeros: fallocate is Linux's.
func (f osFile) Allocate(size int64) error { return fillZeros(f, size) }

// Sync is os.File.Sync, which on Darwin reaches the medium (F_FULLFSYNC).
func (f osFile) Sync() error { return f.File.Sync() }

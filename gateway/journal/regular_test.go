package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tailgate/gateway/journal"
)

// TestNoRegularFile puts something else where the journal has a file: every door is
// refused with its name. A named pipe that were opened as a file is would hold the
// caller for good, so the wait has a bound, which a journal that is right never
// comes near.
func TestNoRegularFile(t *testing.T) {
	put := map[string]func(path string) error{
		"named pipe": func(path string) error { return unix.Mkfifo(path, 0o640) },
		"folder":     func(path string) error { return os.Mkdir(path, 0o750) },
		"device":     func(path string) error { return os.Symlink("/dev/zero", path) },
	}
	for what, put := range put {
		for _, name := range []string{"00000000000000000001.seg", "00000000000000000002.seg", "LOCK"} {
			t.Run(what+"/"+name, func(t *testing.T) {
				dir := t.TempDir()
				if name != "00000000000000000001.seg" {
					j, _, _ := open(t, journal.Options{Dir: dir, SegmentBytes: journal.MinSegmentBytes})
					_, err := j.Append(0, []byte("x"))
					if err := errors.Join(err, j.Close()); err != nil {
						t.Fatal(err)
					}
				}
				path := filepath.Join(dir, name)
				_ = os.Remove(path) // LOCK, which is there already
				if err := put(path); err != nil {
					t.Fatal(err)
				}
				doors := map[string]func() error{
					"open": func() error {
						_, _, _, err := collect(journal.Options{Dir: dir, SegmentBytes: journal.MinSegmentBytes})
						return err
					},
					"cut": func() error {
						_, err := journal.Cut(dir, nil, 2)
						return err
					},
					"verify": func() error {
						_, err := journal.Verify(dir, nil, nil)
						return err
					},
				}
				if name == "LOCK" {
					delete(doors, "verify") // takes no lock
				}
				for door, enter := range doors {
					done := make(chan error, 1)
					go func() { done <- enter() }()
					select {
					case err := <-done:
						if err == nil || !strings.Contains(err.Error(), path) {
							t.Errorf("%s: %v, want an error that names %s", door, err, path)
						}
					case <-time.After(30 * time.Second):
						t.Fatalf("%s hangs", door)
					}
				}
			})
		}
	}
}

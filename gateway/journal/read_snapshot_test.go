package journal

import (
	"errors"
	"io"
	"testing"
)

func TestReadSnapshotBesideTheRunningLog(t *testing.T) {
	j, _, err := Open(Options{Dir: t.TempDir()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	read := func(lsn uint64, r io.Reader) error {
		content, err := io.ReadAll(r)
		if err == nil && (lsn != 2 || string(content) != "state of 2") {
			t.Errorf("LSN %d, %q", lsn, content)
		}
		return errors.Join(errRead, err)
	}
	if err := j.ReadSnapshot(read); err != nil {
		t.Errorf("without a snapshot: %v", err)
	}
	for range 3 {
		if _, err := j.Append(0, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for lsn, content := range map[uint64]string{1: "", 2: "state of 2"} {
		_ = j.Snapshot(lsn, func(w io.Writer) error { _, err := io.WriteString(w, content); return err }) // of 1 after 2 is refused
	}
	if err := j.ReadSnapshot(read); !errors.Is(err, errRead) {
		t.Errorf("got %v, want the error of restore", err)
	}
}

var errRead = errors.New("read")

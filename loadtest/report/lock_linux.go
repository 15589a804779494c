package report

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Lock takes the output folder, which is there, for this run until release is called or the process ends, and leaves nothing in it. Two runs into one folder
// would each replace the other's results. Where the file system has no locks, it takes nothing.
func Lock(folder string) (release func(), err error) {
	file, err := os.Open(folder)
	if err != nil {
		return nil, fmt.Errorf("output folder: %w", err)
	}
	release = func() { _ = file.Close() } // it was only held
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		release()
		return nil, fmt.Errorf("output folder: another run is writing into %s", folder)
	}
	return release, nil
}

//go:build !linux

package machine

import (
	"errors"
	"net/netip"
	"os/exec"
	"runtime"
)

var errLinuxOnly = errors.New("machine: this is known on Linux only")

// Cores returns one entry for each core; nothing is known of them.
func Cores() ([]Core, error) {
	cores := make([]Core, runtime.NumCPU())
	for i := range cores {
		cores[i].ID = i
	}
	return cores, nil
}

// PinProcess is an error where processes cannot be pinned.
func PinProcess([]int) error { return errLinuxOnly }

// StartOn is an error where processes cannot be pinned.
func StartOn([]int, *exec.Cmd) error { return errLinuxOnly }

func (c *Counters) readUsage() error { return nil }

// ResetPeak is an error where the peak cannot be reset.
func ResetPeak() error { return errLinuxOnly }

// ReadCoreTimes is an error where they are not known.
func ReadCoreTimes([]int) (CoreTimes, error) { return CoreTimes{}, errLinuxOnly }

// EnsureFiles leaves the limit as it is.
func EnsureFiles(int) error { return nil }

func (e *Environment) readSystem() { e.OnlineCores = runtime.NumCPU() }

// OpenConnections is an error where the kernel does not show them.
func OpenConnections([]netip.AddrPort) (int, error) { return 0, errLinuxOnly }

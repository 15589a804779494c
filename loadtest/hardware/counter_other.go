//go:build !linux

package hardware

// Counter counts for a process.
type Counter struct{}

// Count cannot count here; Read says so.
func Count() *Counter { return nil }

// Read returns the reason.
func (*Counter) Read() Reading {
	return Reading{NotAvailable: "hardware counters are read on Linux only"}
}

// Close has nothing to close.
func (*Counter) Close() {}

package hardware

// Reading is what was counted since counting began, user and kernel mode together unless UserOnly; two readings are subtracted.
type Reading struct {
	NotAvailable string `json:"not_available,omitempty"` // why nothing was counted; then all else is zero and means nothing

	Cycles       uint64 `json:"cycles"`
	Instructions uint64 `json:"instructions"`
	CacheMisses  uint64 `json:"cache_misses"` // of the last level, as the processor's maker defines them
	BranchMisses uint64 `json:"branch_misses"`
	UserOnly     bool   `json:"user_only"` // the system does not let this process count in the kernel

	// Counted is the least share of the time for which a counter had the hardware to itself: below 1 there were more counters than the processor
	// has, and what they count is extrapolated. 0 to 1.
	Counted float64 `json:"counted"`
}

// Since returns what was counted since an earlier reading of the same process. Counted and UserOnly are this one's.
func (r Reading) Since(earlier Reading) Reading {
	if earlier.NotAvailable != "" && r.NotAvailable == "" {
		return Reading{NotAvailable: earlier.NotAvailable}
	}
	r.Cycles = less(r.Cycles, earlier.Cycles)
	r.Instructions = less(r.Instructions, earlier.Instructions)
	r.CacheMisses = less(r.CacheMisses, earlier.CacheMisses)
	r.BranchMisses = less(r.BranchMisses, earlier.BranchMisses)
	return r
}

// less: what is extrapolated may shrink a little.
func less(now, then uint64) uint64 { return now - min(now, then) }

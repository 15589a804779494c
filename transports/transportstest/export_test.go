package transportstest

import "time"

// SetBound changes how long anything may take, for all cases that start later.
func SetBound(d time.Duration) { bound = d }

package transportstest

import (
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
)

// SetBound changes how long anything may take, for all cases that start later.
func SetBound(d time.Duration) { bound = d }

// MissingReasons is what a run says that has seen these reasons in a compared case, and has run the cases named.
func MissingReasons(seen []pb.Reason, ran ...string) []string {
	r := reasonsSeen{}
	for _, reason := range seen {
		r.see(reason, "a compared case", true)
	}
	for _, name := range ran {
		r.finished(name)
	}
	return r.missing(true)
}

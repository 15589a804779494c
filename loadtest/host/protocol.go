package host

import (
	"encoding/json"
	"time"

	"tailgate/loadtest/machine"
	"tailgate/transports"
)

// Task is what a child is to run. It goes to its standard input, so that keys never stand on a command line.
type Task struct {
	Transport         string   `json:"transport"`          // a name of transports/all, or floor.Name for a bare echo
	Keys              []string `json:"keys"`               // one account each; never logged
	Folder            string   `json:"folder"`             // for the journal; the child removes it when it ends
	Sync              string   `json:"sync"`               // journal mode: off, os or always
	Engine            string   `json:"engine"`             // the server's I/O engine; empty = the transport's first. A bare echo with one takes turns
	CongestionControl string   `json:"congestion_control"` // TCP_CONGESTION of accepted sockets; empty = the system's
	MaxConnections    int      `json:"max_connections"`
	Null              bool     `json:"null"` // the transport's server in front of a gateway that answers at once and knows nothing
	Spin              bool     `json:"spin"` // a bare echo whose reads never sleep
	// HandlerDelay makes the gateway's handler longer by a known time, so that tests can ask whether the tester sees it. No flag leads here.
	HandlerDelay time.Duration `json:"handler_delay_ns"`
}

// Ready is what a child says when it can be dialed.
type Ready struct {
	Addresses  map[string]string `json:"addresses"` // by transport
	PID        int               `json:"pid"`
	GoVersion  string            `json:"go_version"`
	Gomaxprocs int               `json:"gomaxprocs"`
	Cores      []int             `json:"cores"` // that it may use
	Sync       string            `json:"sync"`  // journal mode; "none" for a bare echo
}

// What a child may be asked after its task. The answer is a reply on one line.
const (
	countersRequest = "counters"
	metricsRequest  = "metrics"
)

// reply is the answer to a request.
type reply struct {
	Counters machine.Counters    `json:"counters"`
	Metrics  []transports.Metric `json:"metrics,omitempty"`
	Error    string              `json:"error,omitempty"`
}

// Bounds of a line in either direction, in bytes: a task with 10,000 keys fits.
const maxLine = 1 << 20

func encode(v any) []byte {
	line, err := json.Marshal(v)
	if err != nil {
		panic("host: a message of the protocol cannot be encoded: " + err.Error()) // plain structs of plain fields
	}
	return append(line, '\n')
}

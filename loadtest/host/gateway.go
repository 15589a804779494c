package host

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"tailgate/gateway/server"
	"tailgate/loadtest/workload"
	"tailgate/transports"
)

// shutdownGrace bounds how long a gateway may take to stop.
const shutdownGrace = 5 * time.Second

// maxIDs is the greatest number of orders of one cell: ids are never reused within a run.
const maxIDs = 1 << 27

// reserveIDs is for how many orders the gateway takes memory at its start, so that the first seconds do not measure page faults: about 70 MB.
const reserveIDs = 1 << 18

// Instruments are those that a hosted gateway has open: the defaults of gateway/server, which startGateway leaves as they are.
func Instruments() []workload.Instrument {
	var list []workload.Instrument
	for _, i := range server.DefaultConfig().Instruments {
		if i.State == "open" {
			list = append(list, workload.Instrument{Symbol: i.Symbol, ReferencePrice: i.ReferencePrice, MinNotional: i.MinNotional})
		}
	}
	return list
}

// startGateway runs a gateway with one transport and one account for each key, with no limit that a load test would meet.
func startGateway(ctx context.Context, task Task, logger *slog.Logger) (served, error) {
	config := server.DefaultConfig()
	config.Admin.Disabled = true
	config.Journal.Dir = filepath.Join(task.Folder, "journal")
	config.Journal.Sync = task.Sync
	config.Connections.Max = task.MaxConnections
	config.Connections.CongestionControl = task.CongestionControl
	config.IDs.Max, config.IDs.Reserve = maxIDs, reserveIDs
	if _, known := config.Listeners[task.Transport]; !known {
		return served{}, fmt.Errorf("host: the gateway has no transport %q", task.Transport)
	}
	config.Listeners[task.Transport] = server.Listener{Address: "127.0.0.1:0", Engine: task.Engine}
	for name, listener := range config.Listeners {
		listener.Disabled = name != task.Transport
		config.Listeners[name] = listener
	}
	for i, key := range task.Keys {
		config.Accounts = append(config.Accounts, server.Account{Name: fmt.Sprintf("load-%d", i+1), KeySHA256: []string{server.HashKey(key)}})
	}
	var wrap server.Wrap
	if task.HandlerDelay > 0 {
		wrap = delayed(task.HandlerDelay)
	}
	s, err := server.StartWrapped(ctx, config, logger, wrap)
	if err != nil {
		return served{}, err
	}
	stop := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
		defer cancel()
		return s.Shutdown(ctx)
	}
	metrics := func() []transports.Metric { return s.Metrics(task.Transport) }
	return served{address: s.Addr(task.Transport), end: stop, metrics: metrics}, nil
}

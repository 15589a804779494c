// Package server turns a configuration into a running gateway: it opens the journal, replays it, and serves every transport
// that is switched on.
//
// Both binaries use it, so that what is measured is what is run. It is the one place where a transport is chosen. It must
// never know what a flag is called, nor end the process.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tailgate/gateway/admin"
	"tailgate/gateway/config"
	"tailgate/gateway/entry"
	"tailgate/gateway/feed"
	"tailgate/gateway/journal"
	"tailgate/gateway/orders"
	"tailgate/gateway/sequencer"
	"tailgate/transports"
	"tailgate/transports/all"
)

// The configuration and its parts, for callers that may not know the rooms below.
type (
	// Config is config.Config.
	Config = config.Config
	// Admin is config.Admin.
	Admin = config.Admin
	// Key is config.Key.
	Key = config.Key
	// Firm is config.Firm.
	Firm = config.Firm
	// Account is config.Account.
	Account = config.Account
	// DropCopy is config.DropCopy.
	DropCopy = config.DropCopy
	// Limits is config.Limits.
	Limits = config.Limits
	// Instrument is config.Instrument.
	Instrument = config.Instrument
	// Listener is config.Listener.
	Listener = config.Listener
)

// DefaultConfig is config.Default with every transport on loopback and its own port.
func DefaultConfig() Config {
	listeners := make(map[string]Listener)
	for _, t := range all.All() {
		listeners[t.Name] = Listener{Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(t.Port))}
	}
	return config.Default(listeners)
}

// HashKey is how an account's key stands in the configuration.
func HashKey(key string) string { return entry.HashKey(key).String() }

// Server is a running gateway. Safe for concurrent use.
type Server struct {
	config    Config
	logger    *slog.Logger
	fs        journal.FS // of the journal; nil = the real one
	journal   *journal.Journal
	log       *journalLog // the same for the sequencer
	sequencer *sequencer.Sequencer
	gateway   *entry.Gateway
	wrap      Wrap // what the transports get in the gateway's place; nil = the gateway itself
	snapshots *snapshots
	mu        sync.Mutex // guards servers while they come
	servers   map[string]transports.Server
	admin     *admin.Server // nil where it is disabled
	started   time.Time

	stop    sync.Once
	stopErr error
}

// Wrap puts something between the transports and the order path.
type Wrap func(transports.Gateway) transports.Gateway

// Start is Open, and then listens on every enabled transport, of which there must be one. On an error nothing is left running. The
// context bounds the start only. logger may be nil.
func Start(ctx context.Context, c Config, logger *slog.Logger) (*Server, error) {
	return StartWrapped(ctx, c, logger, nil)
}

// StartWrapped is Start with transports that reach the order path through what wrap returns, which the load tester's own tests need; nil =
// directly. No configuration leads here.
func StartWrapped(ctx context.Context, c Config, logger *slog.Logger, wrap Wrap) (*Server, error) {
	if err := Check(c); err != nil {
		return nil, err
	}
	s, err := Open(ctx, c, logger)
	if err != nil {
		return nil, err
	}
	s.wrap = wrap
	if err := s.listen(ctx); err != nil {
		stopCtx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Shutdown(stopCtx) // the reason to stop is the one to report
		return nil, err
	}
	return s, nil
}

// Check says everything about a configuration that can be said without opening the journal or a socket: values, certificates, and
// that there is a transport to listen on.
func Check(c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := checkEngines(c); err != nil {
		return err
	}
	for _, t := range all.All() {
		if l, ok := c.Listeners[t.Name]; ok && !l.Disabled {
			_, err := loadTLS(c.TLS)
			return err
		}
	}
	return errors.New("no transport is enabled, so nobody could reach the gateway")
}

// checkEngines holds the engines that were chosen against those that the transports have on this system.
func checkEngines(c Config) error {
	if engine := c.Admin.Engine; engine != "" {
		return fmt.Errorf("admin.engine %q: the admin listener has no choice of engines", engine)
	}
	for _, t := range all.All() {
		engine := c.Listeners[t.Name].Engine
		switch {
		case engine == transports.EngineSpin && slices.Contains(t.Engines, engine):
			if n := cores(); n < 2 {
				return fmt.Errorf("listeners.%s.engine %q never sleeps, and would share its core with everything else, clients on this machine included: it takes 2 whole cores, there are %d; choose %s",
					t.Name, engine, n, strings.Join(slices.DeleteFunc(slices.Clone(t.Engines), func(e string) bool { return e == engine }), " or "))
			}
		case engine == "" || slices.Contains(t.Engines, engine):
		case len(t.Engines) == 0:
			return fmt.Errorf("listeners.%s.engine %q: %s has no choice of engines", t.Name, engine, t.Name)
		default:
			return fmt.Errorf("listeners.%s.engine %q: there is %s", t.Name, engine, strings.Join(t.Engines, ", "))
		}
	}
	return nil
}

// Open validates the configuration, opens the journal and replays it: a gateway without listeners, reached through Gateway. A
// context that ends stops the replay.
func Open(ctx context.Context, c Config, logger *slog.Logger) (*Server, error) {
	return openOver(ctx, c, logger, nil)
}

// openOver is Open over a file system; nil = the real one.
func openOver(ctx context.Context, c Config, logger *slog.Logger, fs journal.FS) (*Server, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	s := &Server{config: c, logger: logger, fs: fs, servers: make(map[string]transports.Server), started: time.Now()}
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// stateOptions are the sizes of the state.
func stateOptions(c *Config) orders.Options {
	return orders.Options{
		MaxIDs: c.IDs.Max, ReserveIDs: c.IDs.Reserve, MaxOpenOrders: c.Book.MaxOrders, MaxLevels: c.Book.MaxLevels,
		MaxEvents: c.Events.Max, MaxSessions: c.Sessions.Max, MaxSessionsOfAccount: c.Sessions.MaxPerAccount,
	}
}

// open brings the state up to the journal's end and defines what the configuration has new.
func (s *Server) open(ctx context.Context) error {
	c := &s.config
	replica, err := sequencer.NewReplica(stateOptions(c))
	if err != nil {
		return err
	}
	mode, err := journal.ParseSyncMode(c.Journal.Sync)
	if err != nil {
		return err
	}
	j, report, err := journal.Open(
		journal.Options{
			Dir: c.Journal.Dir, Sync: mode, SegmentBytes: c.Journal.SegmentBytes, KeepSegments: c.Journal.KeepSegments,
			FS: s.fs, Logger: s.logger, Restore: until(ctx, replica.Restore),
		},
		func(e journal.Entry) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return replica.Replay(e.LSN, e.Payload)
		},
	)
	if err != nil {
		return err
	}
	s.journal, s.log = j, &journalLog{Journal: j}
	s.sequencer = sequencer.New(replica, s.log)
	usage := orders.Usage{}
	s.sequencer.Read(func(state *orders.State, _ uint64) { usage = state.Usage() })
	s.logger.Info("journal replayed", "dir", c.Journal.Dir, "sync", c.Journal.Sync, "snapshot", report.Restored, "records", report.Records,
		"orders", usage.OrderIDs, "open_orders", usage.OpenOrders, "took", time.Since(s.started).String())
	keys, err := s.define()
	if err == nil {
		err = s.sequencer.Wait(ctx)
	}
	if err == nil {
		s.gateway, err = entry.New(s.sequencer, entry.Config{
			Keys: keys, Anybody: c.Insecure, Penalty: time.Duration(c.Throttle.Penalty), Logger: s.logger,
			Feed: feed.Options{MaxReaders: c.Events.Readers, MaxReadersOfAccount: c.Events.ReadersPerAccount, CatchUpRate: c.Events.CatchUpRate},
		})
	}
	if err != nil {
		return errors.Join(err, j.Close())
	}
	s.snapshots = startSnapshots(s, report.Restored)
	return nil
}

// listen starts the admin listener and every enabled transport, in the order of the list.
func (s *Server) listen(ctx context.Context) error {
	tlsConfig, err := loadTLS(s.config.TLS)
	if err != nil {
		return err
	}
	if err := s.listenAdmin(ctx, tlsConfig); err != nil {
		return err
	}
	var gateway transports.Gateway = s.gateway
	if s.wrap != nil {
		gateway = s.wrap(gateway)
	}
	n := &s.config.Connections
	for _, l := range s.config.Listeners {
		if l.Engine == transports.EngineSpin && !l.Disabled && runtime.GOMAXPROCS(0) < 2 {
			runtime.GOMAXPROCS(2) // see EngineSpin
		}
	}
	for _, t := range all.All() {
		l, ok := s.config.Listeners[t.Name]
		if !ok || l.Disabled {
			continue
		}
		server, err := t.Listen(ctx, gateway, transports.ListenConfig{
			Address: l.Address, TLS: tlsConfig, Engine: l.Engine, CongestionControl: n.CongestionControl, Logger: s.logger.With("transport", t.Name),
			Limits: transports.Limits{
				MaxConnections: n.Max, MaxRequestBytes: n.MaxRequestBytes, MaxStreams: n.MaxStreams,
				HandshakeTimeout: time.Duration(n.Handshake), RequestTimeout: time.Duration(n.Request),
				IdleTimeout: time.Duration(n.Idle), WriteTimeout: time.Duration(n.Write),
			},
		})
		if err != nil {
			return &ListenError{Transport: t.Name, Address: l.Address, Err: err}
		}
		s.mu.Lock()
		s.servers[t.Name] = server
		s.mu.Unlock()
		s.logger.Info("listening", "transport", t.Name, "address", server.Addr().String(), "tls", tlsConfig != nil)
	}
	return nil
}

// AdminListener is the name of AdminService's listener, beside those of the transports.
const AdminListener = "admin"

// listenAdmin starts the admin listener, unless it is disabled.
func (s *Server) listenAdmin(ctx context.Context, tlsConfig *tls.Config) error {
	l := s.config.Admin.Listener
	if l.Disabled {
		return nil
	}
	server, err := admin.Listen(ctx, l.Address, tlsConfig, s.administration(), s.logger.With("listener", AdminListener))
	if err != nil {
		return &ListenError{Transport: AdminListener, Address: l.Address, Err: err}
	}
	s.admin = server
	s.logger.Info("listening", "transport", AdminListener, "address", server.Addr().String(), "tls", tlsConfig != nil)
	return nil
}

// administration is what the admin listener may do.
func (s *Server) administration() admin.Backend {
	return admin.Backend{
		Sequencer: s.sequencer, Authorize: s.gateway.AuthorizeAdmin, DayEnded: s.snapshots.Now,
		Metrics: s.metrics, Version: Version(), JournalSync: s.config.Journal.Sync, Started: s.started,
	}
}

// metrics asks the transports that count something. The admin listener is there before them.
func (s *Server) metrics() map[string][]transports.Metric {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string][]transports.Metric{}
	for name, server := range s.servers {
		if metered, ok := server.(transports.Metered); ok {
			all[name] = metered.Metrics()
		}
	}
	return all
}

// ListenError says which transport could not listen.
type ListenError struct {
	Transport, Address string
	Err                error
}

// Error implements error.
func (e *ListenError) Error() string {
	return fmt.Sprintf("transport %s cannot listen on %s: %v", e.Transport, e.Address, e.Err)
}

// Unwrap returns the cause.
func (e *ListenError) Unwrap() error { return e.Err }

// Gateway is the order path without a transport, for tests and for transports of the same process.
func (s *Server) Gateway() transports.Gateway { return s.gateway }

// Addr is where a transport, or AdminListener, listens, nil when it does not.
func (s *Server) Addr(transport string) net.Addr {
	if transport == AdminListener && s.admin != nil {
		return s.admin.Addr()
	}
	if server, ok := s.servers[transport]; ok {
		return server.Addr()
	}
	return nil
}

// Metrics are the present figures of a transport's own flow control; nil where it does not listen, or has none.
func (s *Server) Metrics(transport string) []transports.Metric {
	if metered, ok := s.servers[transport].(transports.Metered); ok {
		return metered.Metrics()
	}
	return nil
}

// Shutdown stops in order: readers of events end and timers stop; every transport takes nothing new and answers what it accepted, all at
// once, and a snapshot that is being made beside them is given up; then the journal is synced and closed, after a snapshot where the next
// start would replay for long. When the context ends first, what is left is cut, no snapshot is begun or gone on with, and the journal is
// closed all the same, which takes as long as its disk does and is the one thing that the context does not bound. Later calls return what
// the first one did.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop.Do(func() {
		s.gateway.Drain()
		var wait sync.WaitGroup
		errs := make(chan error, len(s.servers)+2)
		stop := func(what string, shutdown func(context.Context) error) {
			wait.Go(func() {
				if err := shutdown(ctx); err != nil {
					errs <- fmt.Errorf("%s: %w", what, err)
				}
			})
		}
		stop("snapshots", s.snapshots.Stop)
		if s.admin != nil {
			stop("listener "+AdminListener, s.admin.Shutdown)
		}
		for name, server := range s.servers {
			stop("transport "+name, server.Shutdown)
		}
		wait.Wait()
		close(errs)
		for err := range errs {
			s.stopErr = errors.Join(s.stopErr, err)
		}
		s.stopErr = errors.Join(s.stopErr, s.snapshots.atStop(ctx, s.journal.Close))
	})
	return s.stopErr
}

func loadTLS(c config.TLS) (*tls.Config, error) {
	if c.Certificate == "" {
		return nil, nil
	}
	certificate, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
	if err != nil {
		return nil, fmt.Errorf("tls: certificate %s, key %s: %w", c.Certificate, c.Key, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}, nil
}

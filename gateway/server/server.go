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
	"strconv"
	"sync"
	"time"

	"tailgate/gateway/config"
	"tailgate/gateway/entry"
	"tailgate/gateway/journal"
	"tailgate/gateway/orders"
	"tailgate/gateway/sequencer"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/all"
)

// The configuration and its parts, for callers that may not know the rooms below.
type (
	// Config is config.Config.
	Config = config.Config
	// Account is config.Account.
	Account = config.Account
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
	journal   *journal.Journal
	sequencer *sequencer.Sequencer
	gateway   *entry.Gateway
	servers   map[string]transports.Server

	stop    sync.Once
	stopErr error
}

// Start is Open, and then listens on every enabled transport, of which there must be one. On an error nothing is left running. The
// context bounds the start only. logger may be nil.
func Start(ctx context.Context, c Config, logger *slog.Logger) (*Server, error) {
	if err := Check(c); err != nil {
		return nil, err
	}
	s, err := Open(ctx, c, logger)
	if err != nil {
		return nil, err
	}
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
	for _, t := range all.All() {
		if l, ok := c.Listeners[t.Name]; ok && !l.Disabled {
			_, err := loadTLS(c.TLS)
			return err
		}
	}
	return errors.New("no transport is enabled, so nobody could reach the gateway")
}

// Open validates the configuration, opens the journal and replays it: a gateway without listeners, reached through Gateway. A
// context that ends stops the replay.
func Open(ctx context.Context, c Config, logger *slog.Logger) (*Server, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	s := &Server{config: c, logger: logger, servers: make(map[string]transports.Server)}
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// open brings the state up to the journal's end and defines what the configuration has new.
func (s *Server) open(ctx context.Context) error {
	c := &s.config
	replica, err := sequencer.NewReplica(orders.Options{
		MaxIDs: c.IDs.Max, ReserveIDs: c.IDs.Reserve, MaxOpenOrders: c.Book.MaxOrders, MaxLevels: c.Book.MaxLevels,
	})
	if err != nil {
		return err
	}
	mode, err := journal.ParseSyncMode(c.Journal.Sync)
	if err != nil {
		return err
	}
	started := time.Now()
	j, report, err := journal.Open(
		journal.Options{Dir: c.Journal.Dir, Sync: mode, SegmentBytes: c.Journal.SegmentBytes, Logger: s.logger},
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
	s.journal = j
	s.sequencer = sequencer.New(replica, journalLog{j})
	usage := orders.Usage{}
	s.sequencer.Read(func(state *orders.State, _ uint64) { usage = state.Usage() })
	s.logger.Info("journal replayed", "dir", c.Journal.Dir, "sync", c.Journal.Sync, "records", report.Records,
		"orders", usage.OrderIDs, "open_orders", usage.OpenOrders, "took", time.Since(started).String())
	keys, err := s.define()
	if err == nil {
		s.gateway, err = entry.New(s.sequencer, entry.Config{Keys: keys, Anybody: c.Insecure, Logger: s.logger})
	}
	if err != nil {
		return errors.Join(err, j.Close())
	}
	return nil
}

// define journals the instruments and accounts of the configuration that the state does not have like that yet, and returns whose key
// is whose.
func (s *Server) define() (map[entry.KeyHash]entry.Key, error) {
	for i := range s.config.Instruments {
		definition, err := instrumentOf(&s.config.Instruments[i])
		if err != nil {
			return nil, err
		}
		var known orders.Instrument
		var ok bool
		s.sequencer.Read(func(state *orders.State, _ uint64) { known, ok = state.Instrument(definition.Symbol) })
		definition.Version = known.Version
		if ok && known == definition {
			continue
		}
		if err := s.execute(&orders.Command{Kind: orders.DefineInstrument, Instrument: &definition}); err != nil {
			return nil, fmt.Errorf("define instrument %s: %w", definition.Symbol, err)
		}
	}
	if err := s.closeUnlisted(); err != nil {
		return nil, err
	}
	keys := make(map[entry.KeyHash]entry.Key)
	accounts := s.config.Accounts
	if len(accounts) == 0 {
		accounts = []Account{{Name: entry.DemoAccount}}
	}
	for _, a := range accounts {
		number, ok := s.account(a.Name)
		if !ok {
			if err := s.execute(&orders.Command{Kind: orders.DefineAccount, Name: a.Name}); err != nil {
				return nil, fmt.Errorf("define account %s: %w", a.Name, err)
			}
			number, _ = s.account(a.Name)
		}
		if err := s.setLimits(orders.Scope{Number: number}); err != nil {
			return nil, fmt.Errorf("limits of account %s: %w", a.Name, err)
		}
		for _, text := range a.KeySHA256 {
			hash, err := entry.ParseKeyHash(text)
			if err != nil {
				return nil, fmt.Errorf("account %s: %w", a.Name, err)
			}
			keys[hash] = entry.Key{Name: a.Name, Role: entry.Trade, Account: number}
		}
	}
	return keys, nil
}

// setLimits journals the configured limits unless they are those that the scope got from the configuration last: what was set at run time
// since then stays.
func (s *Server) setLimits(scope orders.Scope) error {
	c := &s.config.Limits
	limits := orders.Limits{MaxQuantity: c.MaxQuantity, MaxNotional: c.MaxNotional, PriceCollarBps: c.PriceCollarBps}
	var known orders.Limits
	s.sequencer.Read(func(state *orders.State, _ uint64) { known = state.ConfiguredLimits(scope) })
	if known.Equal(&limits) {
		return nil
	}
	return s.execute(&orders.Command{Kind: orders.SetLimits, Scope: scope, Limits: &limits, Configured: true})
}

// closeUnlisted closes the instruments that the journal has and the configuration no longer lists: their orders can be canceled, and
// nothing new trades.
func (s *Server) closeUnlisted() error {
	listed := make(map[string]bool)
	for _, i := range s.config.Instruments {
		listed[i.Symbol] = true
	}
	var known []orders.Instrument
	s.sequencer.Read(func(state *orders.State, _ uint64) { known = state.Instruments(nil) })
	for _, definition := range known {
		if listed[definition.Symbol.String()] || definition.State == pb.InstrumentState_INSTRUMENT_STATE_CLOSED {
			continue
		}
		definition.State = pb.InstrumentState_INSTRUMENT_STATE_CLOSED
		if err := s.execute(&orders.Command{Kind: orders.DefineInstrument, Instrument: &definition}); err != nil {
			return fmt.Errorf("close instrument %s: %w", definition.Symbol, err)
		}
		s.logger.Warn("instrument is no longer configured: closed", "symbol", definition.Symbol.String())
	}
	return nil
}

func (s *Server) account(name string) (number uint32, ok bool) {
	s.sequencer.Read(func(state *orders.State, _ uint64) { number, ok = state.Account(name) })
	return number, ok
}

func (s *Server) execute(c *orders.Command) error {
	c.ReceivedNs = transports.Now()
	var answer orders.Answer
	return s.sequencer.Execute(c, &answer)
}

var instrumentStates = map[string]pb.InstrumentState{
	"open":   pb.InstrumentState_INSTRUMENT_STATE_OPEN,
	"halted": pb.InstrumentState_INSTRUMENT_STATE_HALTED,
	"closed": pb.InstrumentState_INSTRUMENT_STATE_CLOSED,
}

func instrumentOf(c *Instrument) (orders.Instrument, error) {
	symbol, ok := orders.ParseSymbol(c.Symbol)
	if !ok {
		return orders.Instrument{}, fmt.Errorf("symbol %q is not 1 to %d of [A-Z0-9._-]", c.Symbol, orders.MaxSymbolBytes)
	}
	return orders.Instrument{
		Symbol: symbol, TickNanos: c.TickNanos, LotSize: c.LotSize, Currency: c.Currency, State: instrumentStates[c.State],
		MinNotional: c.MinNotional, MaxNotional: c.MaxNotional, ReferencePrice: c.ReferencePrice,
	}, nil
}

// listen starts every enabled transport, in the order of the list.
func (s *Server) listen(ctx context.Context) error {
	tlsConfig, err := loadTLS(s.config.TLS)
	if err != nil {
		return err
	}
	n := &s.config.Connections
	for _, t := range all.All() {
		l, ok := s.config.Listeners[t.Name]
		if !ok || l.Disabled {
			continue
		}
		server, err := t.Listen(ctx, s.gateway, transports.ListenConfig{
			Address: l.Address, TLS: tlsConfig, CongestionControl: n.CongestionControl, Logger: s.logger.With("transport", t.Name),
			Limits: transports.Limits{
				MaxConnections: n.Max, MaxRequestBytes: n.MaxRequestBytes, MaxStreams: n.MaxStreams,
				HandshakeTimeout: time.Duration(n.Handshake), RequestTimeout: time.Duration(n.Request),
				IdleTimeout: time.Duration(n.Idle), WriteTimeout: time.Duration(n.Write),
			},
		})
		if err != nil {
			return &ListenError{Transport: t.Name, Address: l.Address, Err: err}
		}
		s.servers[t.Name] = server
		s.logger.Info("listening", "transport", t.Name, "address", server.Addr().String(), "tls", tlsConfig != nil)
	}
	return nil
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

// Addr is where a transport listens, nil when it does not.
func (s *Server) Addr(transport string) net.Addr {
	if server, ok := s.servers[transport]; ok {
		return server.Addr()
	}
	return nil
}

// Shutdown stops in order: every transport takes nothing new and answers what it accepted, all at once; then the journal is synced and
// closed. When the context ends first, what is left is cut, and the journal is closed all the same. Later calls
// return what the first one did.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop.Do(func() {
		s.gateway.Drain()
		var wait sync.WaitGroup
		errs := make(chan error, len(s.servers))
		for name, server := range s.servers {
			wait.Go(func() {
				if err := server.Shutdown(ctx); err != nil {
					errs <- fmt.Errorf("transport %s: %w", name, err)
				}
			})
		}
		wait.Wait()
		close(errs)
		for err := range errs {
			s.stopErr = errors.Join(s.stopErr, err)
		}
		s.stopErr = errors.Join(s.stopErr, s.journal.Close())
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

// Command gateway runs the order-entry gateway.
//
// It needs nothing: without arguments it listens on loopback, on every transport's own port, for the account demo, with its journal in
// ./data. Flags override TAILGATE_ environment variables, which override the file given with --config, which overrides the
// defaults.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"tailgate/gateway/config"
	"tailgate/gateway/journal"
	"tailgate/gateway/orders"
	"tailgate/gateway/server"
	"tailgate/transports/all"
)

// Exit statuses.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// options are the flags that change the configuration. All commands take them.
type options struct {
	Config     string            `help:"Read this YAML file; unknown keys are errors. 'gateway config print' shows one." env:"TAILGATE_CONFIG" placeholder:"FILE"`
	Data       *string           `help:"Folder of the journal (default ./data)." env:"TAILGATE_DATA" placeholder:"DIR"`
	Sync       *string           `help:"When an order is acked: off (no promise), os (outlives the process, default), always (outlives a power cut)." env:"TAILGATE_SYNC" placeholder:"MODE"`
	Listen     map[string]string `help:"Where a transport (or admin) listens, repeatable: --listen tcp=127.0.0.1:7001, port 0 for a free one, --listen rest=off to switch one off." env:"TAILGATE_LISTEN" placeholder:"NAME=ADDRESS" mapsep:","`
	Congestion string            `help:"TCP congestion control of accepted connections, e.g. cubic (default: the system's)." env:"TAILGATE_CONGESTION" placeholder:"NAME"`
	Insecure   bool              `help:"Allow listening beyond loopback without TLS or keys." env:"TAILGATE_INSECURE"`
}

// cli is the command line.
type cli struct {
	options

	Serve   struct{}   `cmd:"" default:"1" help:"Run the gateway (this is the default)."`
	Conf    configCmd  `cmd:"" name:"config" help:"Check or print the configuration that would be used."`
	Journal journalCmd `cmd:"" help:"Look at a journal, or repair it."`
	Admin   adminCmd   `cmd:"" help:"Ask or tell a running gateway: status, exposure, limits, kill switch, end of day."`
	Version struct{}   `cmd:"" help:"Print the version."`
}

type configCmd struct {
	Check struct{} `cmd:"" help:"Say what is wrong with the configuration; exit status 2 when something is."`
	Print struct{} `cmd:"" help:"Print the whole configuration as YAML, defaults included."`
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main without the process: it returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	var c cli
	status := -1
	parser, err := kong.New(&c,
		kong.Name("gateway"),
		kong.Description("Order-entry gateway: one order path, many transports. Without arguments it serves "+
			strings.Join(all.Names(), ", ")+" on loopback for the account demo and keeps its journal in ./data."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { status = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	if err != nil {
		fmt.Fprintln(stderr, "gateway: error:", err)
		return exitFailure
	}
	command, err := parser.Parse(args)
	if status >= 0 { // --help was asked for and printed
		return status
	}
	if err != nil {
		fmt.Fprintf(stderr, "gateway: error: %v\nTry 'gateway --help'.\n", err)
		return exitUsage
	}
	if command.Command() == "version" {
		fmt.Fprintln(stdout, server.Version())
		return exitOK
	}
	conf, err := c.options.load()
	if err == nil {
		err = server.Check(conf)
	}
	if err != nil {
		fmt.Fprintf(stderr, "gateway: configuration:\n  %s\n", strings.ReplaceAll(err.Error(), "\n", "\n  "))
		return exitUsage
	}
	if strings.HasPrefix(command.Command(), "admin ") {
		return c.Admin.run(command.Command(), conf, stdout, stderr)
	}
	switch command.Command() {
	case "config check":
		fmt.Fprintln(stdout, "The configuration is right.")
		return exitOK
	case "journal verify":
		return verifyJournal(conf.Journal.Dir, stdout, stderr)
	case "journal dump":
		return dumpJournal(conf.Journal.Dir, c.Journal.Dump.From, c.Journal.Dump.To, stdout, stderr)
	case "journal cut <lsn>":
		return cutJournal(conf.Journal.Dir, c.Journal.Cut.LSN, stdout, stderr)
	case "config print":
		text, err := conf.YAML()
		if err != nil {
			fmt.Fprintln(stderr, "gateway: error:", err)
			return exitFailure
		}
		_, _ = stdout.Write(text)
		return exitOK
	case "serve":
		return serve(conf, newLogger(stderr), stderr)
	default:
		fmt.Fprintf(stderr, "gateway: error: the command %q has no code\n", command.Command())
		return exitFailure
	}
}

// load puts file and flags over the defaults; kong has put flags over the environment.
func (o *options) load() (config.Config, error) {
	c := server.DefaultConfig()
	if o.Config != "" {
		var err error
		if c, err = config.Load(o.Config, c); err != nil {
			return c, err
		}
	}
	if o.Data != nil { // given as "" it is refused as an empty name, not ignored
		c.Journal.Dir = *o.Data
	}
	if o.Sync != nil {
		c.Journal.Sync = *o.Sync
	}
	if o.Congestion != "" {
		c.Connections.CongestionControl = o.Congestion
	}
	c.Insecure = c.Insecure || o.Insecure
	for name, address := range o.Listen {
		l := config.Listener{Address: address, Disabled: address == "off"}
		if l.Disabled {
			l.Address = ""
		}
		switch {
		case name == server.AdminListener:
			c.Admin.Listener = l
		case slices.Contains(all.Names(), name):
			c.Listeners[name] = l
		default:
			return c, fmt.Errorf("--listen %s=%s: no such listener, allowed are %s, %s", name, address, strings.Join(all.Names(), ", "), server.AdminListener)
		}
	}
	return c, nil
}

// serve runs the gateway until a signal ends it, be it during the replay. A second signal ends it at once.
func serve(c config.Config, logger *slog.Logger, stderr io.Writer) int {
	first, stopFirst := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stopFirst()

	logger.Info("starting", "version", server.Version(), "data", c.Journal.Dir, "sync", c.Journal.Sync, "cores", runtime.GOMAXPROCS(0))
	s, err := server.Start(first, c, logger)
	if err != nil && first.Err() != nil {
		logger.Info("stopped before it was ready")
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "gateway: cannot start: %v\n%s", err, advice(err, c.Journal.Dir))
		return exitFailure
	}
	logger.Info("ready")
	<-first.Done()
	stopFirst()
	second, stopSecond := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stopSecond()
	logger.Info("stopping", "grace", time.Duration(c.Grace).String())

	ctx, cancel := context.WithTimeout(second, time.Duration(c.Grace))
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		logger.Error("stopped, not everything was answered", "error", err)
		return exitFailure
	}
	logger.Info("stopped")
	return exitOK
}

// advice says what to do about an error of a start, as far as it is known.
func advice(err error, dir string) string {
	var listen *server.ListenError
	switch {
	case errors.As(err, &listen) && errors.Is(err, syscall.EADDRINUSE):
		return fmt.Sprintf("Another program has that address. Choose another one with --listen %s=127.0.0.1:PORT, or switch the transport off with --listen %s=off.\n",
			listen.Transport, listen.Transport)
	case errors.Is(err, journal.ErrLocked):
		return "Another gateway uses this folder. Stop it, or choose another folder with --data DIR.\n"
	case errors.Is(err, journal.ErrDamaged):
		text := fmt.Sprintf("Nothing was changed. 'gateway journal verify --data %s' shows it again", dir)
		if damage, ok := errors.AsType[*journal.DamageError](err); ok && !damage.Final {
			text += ", 'gateway journal cut' gives up what cannot be read"
		}
		return text + ".\n"
	case errors.Is(err, orders.ErrReplay):
		return "Nothing was changed. The journal was written with larger sizes: set ids.max, events.max, sessions.max, book.max_orders and book.max_levels to at least what they were.\n"
	default:
		return ""
	}
}

package tcp_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"tailgate/transports/tcp"
)

// engine is the I/O engine of the servers that tests start without naming one.
var engine string

// TestMain runs every test with each engine that the system has; TCP_ENGINE names one instead. Benchmarks and fuzz tests name theirs.
func TestMain(m *testing.M) { goleak.VerifyTestMain(everyEngine{m}) }

type everyEngine struct{ m *testing.M }

func (e everyEngine) Run() (code int) {
	flag.Parse()
	engines := tcp.Transport().Engines
	if only := os.Getenv("TCP_ENGINE"); only != "" {
		engines = []string{only}
	}
	for _, flags := range []string{"test.bench", "test.fuzz", "test.list"} {
		if flag.Lookup(flags).Value.String() != "" {
			engines = engines[:1]
		}
	}
	for _, engine = range engines {
		if testing.Verbose() {
			fmt.Printf("=== engine %s\n", engine)
		}
		if failed := e.m.Run(); failed != 0 {
			fmt.Printf("with engine %s\n", engine)
			code = failed
		}
	}
	return code
}

package report_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"tailgate/loadtest/report"
	"tailgate/transports/all"
)

// TestTerms: what is not equal between the rows stands above them.
func TestTerms(t *testing.T) {
	cell := func(transport, spec string, clients int) made {
		return made{transport: transport, spec: spec, size: 64, clients: clients, n: 1000, median: time.Millisecond, spread: 0.1}
	}
	for _, c := range []struct {
		name  string
		cells []made
		want  []string
		not   []string
	}{
		{"the default", []made{cell("tcp", "tcp", 1), cell("tcp", "tcp", 50), cell("rest", "rest", 50), cell("grpc", "grpc", 50), cell("floor", "floor", 1)},
			[]string{
				"Messages: protobuf on tcp, rest, grpc (there is also --transport rest:json).",
				"Hand-written codecs: tcp (new orders and their answers, at both ends); rest (decoding of new orders, at the gateway); all else is the protobuf library's.",
				"Connections: one for each client on tcp, rest; 1 for all clients on grpc.",
			}, []string{"on floor", "floor,"}},
		{"both encodings", []made{cell("rest", "rest", 2), cell("rest", "rest:json", 2)}, []string{"Messages: protobuf on rest; json on rest:json.", "Connections: one for each client on rest, rest:json."}, []string{"there is also", "rest:json (decoding"}},
		{"JSON alone", []made{cell("rest", "rest:json", 2)}, []string{"Messages: json on rest:json (there is also --transport rest:protobuf)."}, []string{"Hand-written"}},
		{"one client shares with nobody", []made{cell("grpc", "grpc", 1)}, []string{"Messages: protobuf on grpc."}, []string{"Connections:", "there is also", "Hand-written"}},
	} {
		r := sample(t, "p99<10ms")
		r.Cells = nil
		for _, m := range c.cells {
			r.Cells = append(r.Cells, m.cell(t, nil))
		}
		var out strings.Builder
		if err := report.Table(&out, r); err != nil {
			t.Fatal(err)
		}
		heading, _, _ := strings.Cut(out.String(), " p50 ")
		heading = strings.Join(strings.Fields(heading), " ")
		for _, want := range c.want {
			if !strings.Contains(heading, want) {
				t.Errorf("%s: above the table stands no %q:\n%s", c.name, want, out.String())
			}
		}
		for _, not := range c.not {
			if strings.Contains(heading, not) {
				t.Errorf("%s: above the table stands %q:\n%s", c.name, not, out.String())
			}
		}
	}
}

// TestByHand: the table names exactly the transports that are built with hand-written codecs for what a cell sends.
func TestByHand(t *testing.T) {
	// They encode by hand what no cell uses: grpc the answers on the stream of a session, while cells send unary calls.
	unmeasured := []string{"grpc"}
	for _, transport := range all.All() {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "tailgate/transports/"+transport.Name).Output()
		if err != nil {
			t.Fatal(err)
		}
		built := strings.Contains(string(out), "tailgate/transports/internal/hotcodec\n") && !slices.Contains(unmeasured, transport.Name)
		r := sample(t, "p99<10ms")
		r.Cells = []report.Cell{made{transport: transport.Name, spec: transport.Name, size: 64, clients: 1, n: 10, median: time.Millisecond}.cell(t, nil)}
		var table strings.Builder
		if err := report.Table(&table, r); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(table.String(), "Hand-written codecs: "+transport.Name+" ("); said != built {
			t.Errorf("%s is built with hand-written codecs: %t; the table says so: %t", transport.Name, built, said)
		}
	}
}

package restfasthttp

import (
	"net"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"

	"tailgate/transports"
	"tailgate/transports/internal/resttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAnswers: an answer's buffer is fasthttp's until it is written.
func TestAnswers(t *testing.T) {
	resttest.Answers(t, func(inner net.Listener, gateway transports.Gateway) transports.Server {
		return Serve("fasthttp", inner, gateway, transports.ListenConfig{}, func(b *Binding) *fasthttp.Server {
			return &fasthttp.Server{Handler: func(c *fasthttp.RequestCtx) { b.Serve(nil, c) }}
		})
	})
}

// TestDate: each response has the date of its own second, once, and nothing of the response before.
func TestDate(t *testing.T) {
	var d date
	var header fasthttp.ResponseHeader
	start := time.Date(2026, 12, 31, 23, 59, 59, 0, time.FixedZone("elsewhere", 3600))
	for _, c := range []struct {
		after time.Duration
		want  string
	}{
		{0, "Thu, 31 Dec 2026 22:59:59 GMT"},
		{999 * time.Millisecond, "Thu, 31 Dec 2026 22:59:59 GMT"},
		{time.Second, "Thu, 31 Dec 2026 23:00:00 GMT"},
		{0, "Thu, 31 Dec 2026 22:59:59 GMT"}, // a clock that was set back
	} {
		d.put(start.Add(c.after), &header)
		header.SetStatusCode(fasthttp.StatusNotFound)
		if got := header.PeekAll("Date"); len(got) != 1 || string(got[0]) != c.want || header.Peek("Allow") != nil || header.ConnectionClose() {
			t.Errorf("%v later: %q, want %q; %s", c.after, got, c.want, header.String())
		}
		header.Set("Allow", "GET")
		header.SetConnectionClose()
	}
}

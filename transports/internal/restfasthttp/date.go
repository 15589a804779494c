package restfasthttp

import (
	"bufio"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
)

// date gives responses the header Date, which RFC 9110, section 6.6.1 wants of a server that has a clock. fasthttp's own is kept up to date by a goroutine
// that never ends, and its setters drop any other; a header that was read, and copies of it, keep theirs. One goroutine at a time uses it.
type date struct {
	second int64 // of Unix time, of header; 0 = none yet
	header fasthttp.ResponseHeader
}

// put makes the header of a response, nothing of which was set yet, one with the date and nothing else.
func (d *date) put(now time.Time, to *fasthttp.ResponseHeader) {
	if second := now.Unix(); second != d.second {
		d.second = second
		to.CopyTo(&d.header) // with the server's choice that there is no default
		text := "HTTP/1.1 200\r\nContent-Length: 0\r\nDate: " + string(fasthttp.AppendHTTPDate(nil, now)) + "\r\n\r\n"
		if err := d.header.Read(bufio.NewReaderSize(strings.NewReader(text), len(text))); err != nil {
			panic(err) // it is well formed
		}
		d.header.SetProtocol(nil) // that of the default, for which the status line is ready
	}
	d.header.CopyTo(to)
}

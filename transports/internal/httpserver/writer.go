package httpserver

import (
	"net/http"
	"sync"
	"time"
)

// Writer is what a handler answers with that serves HTTP/2 as well. It sees a stream whose peer takes nothing: the write blocks on flow control
// while the connection goes on, so that guard, which watches connections, has nothing to see. A stream that takes less than 64 KiB in
// WriteTimeout is reset. One request's handler uses it, and calls Finish, deferred, at the end.
type Writer struct {
	http.ResponseWriter
	// Last closes the connection behind this answer. It is read when the headers leave; over HTTP/2 net/http makes GOAWAY of it.
	Last bool
	// Held makes Flush do nothing, while more is to come at once.
	Held bool

	draining  func() bool
	timeout   time.Duration
	http2     bool
	begun     bool
	unflushed int
	watch     watch
}

// NewWriter returns the writer of one request. draining is asked when the headers leave, and is Last when it is true.
func NewWriter(w http.ResponseWriter, r *http.Request, timeout time.Duration, draining func() bool) Writer {
	return Writer{ResponseWriter: w, http2: r.ProtoMajor >= 2, timeout: timeout, draining: draining}
}

// Multiplexed reports whether the connection carries other requests beside this one.
func (w *Writer) Multiplexed() bool { return w.http2 }

// Stalled reports whether the peer did not take a write in time, so that its stream was reset.
func (w *Writer) Stalled() bool {
	w.watch.mu.Lock()
	defer w.watch.mu.Unlock()
	return w.watch.failed
}

// chunk is how much a peer has to take within WriteTimeout.
const chunk = 64 << 10

// begin is called before the headers leave.
func (w *Writer) begin() {
	if w.begun {
		return
	}
	w.begun = true
	if w.Last || w.draining() {
		w.Header()["Connection"] = closing
	}
}

// closing ends a connection with its answer. Never changed.
var closing = []string{"close"}

// WriteHeader implements http.ResponseWriter.
func (w *Writer) WriteHeader(status int) {
	w.begin()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *Writer) Write(p []byte) (written int, err error) {
	w.begin()
	if !w.http2 {
		return w.ResponseWriter.Write(p)
	}
	for {
		part := p[written:min(len(p), written+chunk)]
		w.watch.start(w)
		n, err := w.ResponseWriter.Write(part)
		w.watch.stop()
		w.unflushed += n
		if written += n; err != nil || written == len(p) {
			return written, err
		}
	}
}

// Flush implements http.Flusher.
func (w *Writer) Flush() {
	w.begin()
	if w.Held {
		return
	}
	w.unflushed = 0
	if w.http2 {
		w.watch.start(w)
		defer w.watch.stop()
	}
	http.NewResponseController(w.ResponseWriter).Flush() //nolint:errcheck // the next write says so
}

// Unwrap is for http.ResponseController.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Finish writes what net/http holds back of a large answer while it is watched, and ends the watch. What is small fits into the window that a peer
// has at first; one that chose a smaller window holds its stream up until its connection ends.
func (w *Writer) Finish() {
	defer w.watch.stop()
	if w.http2 && w.unflushed > chunk/4 {
		w.Flush()
	}
}

// watch ends a stream when a write takes too long. Its timer is made with the first write that it is started for, and used again.
type watch struct {
	mu     sync.Mutex
	timer  *time.Timer
	armed  bool
	failed bool // it has ended the stream
}

func (w *watch) start(out *Writer) {
	timeout := out.timeout
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = true
	if w.timer != nil {
		w.timer.Reset(timeout)
		return
	}
	w.timer = time.AfterFunc(timeout, func() {
		w.mu.Lock() // which stop takes before the handler returns: net/http's writer is good for so long
		defer w.mu.Unlock()
		if w.armed {
			w.failed = true
			http.NewResponseController(out.ResponseWriter).SetWriteDeadline(time.Unix(1, 0)) //nolint:errcheck // resets the stream
		}
	})
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed {
		w.armed = false
		w.timer.Stop()
	}
}

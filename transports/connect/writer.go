package connect

import (
	"net/http"
	"sync"
	"time"
)

// writer is what the library answers with. It sees a stream of HTTP/2 whose peer takes nothing: the write blocks on flow control while the
// connection goes on, so that guard, which watches connections, has nothing to see.
type writer struct {
	http.ResponseWriter
	call        *call
	multiplexed bool // HTTP/2
	last        bool // the connection is closed behind this answer
	begun       bool
	held        bool // Flush does nothing: more is to come at once
	unflushed   int
	watch       watch
}

// chunk is how much a peer has to take within WriteTimeout.
const chunk = 64 << 10

// begin is called before the headers leave.
func (w *writer) begin() {
	if w.begun {
		return
	}
	w.begun = true
	// Over HTTP/2 net/http makes GOAWAY of it.
	if w.last || w.call.handler.draining.Load() {
		w.Header()["Connection"] = closing
	}
}

// closing ends a connection with its answer. Never changed.
var closing = []string{"close"}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	w.begin()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (written int, err error) {
	w.begin()
	if !w.multiplexed {
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
func (w *writer) Flush() {
	w.begin()
	if w.held {
		return
	}
	w.unflushed = 0
	if w.multiplexed {
		w.watch.start(w)
		defer w.watch.stop()
	}
	http.NewResponseController(w.ResponseWriter).Flush() //nolint:errcheck // the next write says so
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// finish writes what net/http holds back of a large answer while it is watched. What is small fits into the window that a peer has at first;
// one that chose a smaller window holds its stream up until its connection ends.
func (w *writer) finish() {
	if w.multiplexed && w.unflushed > chunk/4 {
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

func (w *watch) start(out *writer) {
	timeout := out.call.handler.limits.WriteTimeout
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

// hasFailed reports whether the peer did not take a write in time.
func (w *watch) hasFailed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

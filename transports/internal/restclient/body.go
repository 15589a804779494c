package restclient

import (
	"io"
	"sync"
)

// buffers are the client's buffers for encoded requests.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// body is a request's body in a buffer of the pool. The buffer goes back when net/http closes the body, which it always does, at times on
// another goroutine than the one that still reads, and after the answer. So each request has a body of its own: a late Read finds
// it closed and never another request's bytes.
type body struct {
	mu     sync.Mutex
	buffer *[]byte // nil once closed
	offset int
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buffer == nil {
		return 0, io.ErrClosedPipe
	}
	if b.offset == len(*b.buffer) {
		return 0, io.EOF
	}
	n := copy(p, (*b.buffer)[b.offset:])
	b.offset += n
	return n, nil
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buffer != nil {
		buffers.Put(b.buffer)
		b.buffer = nil
	}
	return nil
}

// emptyBody is a body with nothing in it.
type emptyBody struct{}

// Read implements io.Reader.
func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }

// Close implements io.Closer.
func (emptyBody) Close() error { return nil }

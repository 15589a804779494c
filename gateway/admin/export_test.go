package admin

import (
	"context"
	"crypto/tls"
	"time"
)

// ListenWith is Listen with other bounds.
func ListenWith(tlsConfig *tls.Config, backend Backend, most int, patience time.Duration) (*Server, error) {
	return listen(context.Background(), "127.0.0.1:0", tlsConfig, backend, nil, &door{most: most, patience: patience})
}

// Package bearer is how an API key travels in an Authorization header: RFC 6750, section 2.1. It is shared by the transports
// that speak HTTP, so that all of them take and refuse the same headers. It must never know which keys are good.
package bearer

import (
	"strings"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

const scheme = "Bearer "

// Key returns the key of the Authorization headers of one request: empty without a header, a fault (UNAUTHENTICATED) for more than
// one, another scheme, or a key that RFC 6750 does not allow. The fault never repeats the header.
func Key(headers []string) (string, error) {
	switch len(headers) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "%d Authorization headers came; send one: Authorization: Bearer KEY", len(headers))
	}
	header := headers[0]
	// The scheme's case does not matter: RFC 9110, section 11.1.
	if len(header) < len(scheme) || !strings.EqualFold(header[:len(scheme)], scheme) {
		return "", transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "the Authorization header is not of the form: Bearer KEY")
	}
	key := strings.TrimLeft(header[len(scheme):], " ")
	if !wellFormed(key) {
		return "", transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "the key in the Authorization header is empty or has a character outside A-Z a-z 0-9 - . _ ~ + / =")
	}
	return key, nil
}

// Header is the inverse of Key.
func Header(key string) string { return scheme + key }

// wellFormed reports whether key is a b64token: 1*( ALPHA / DIGIT / "-" / "." / "_" / "~" / "+" / "/" ) *"=".
func wellFormed(key string) bool {
	body := strings.TrimRight(key, "=")
	if body == "" {
		return false
	}
	for i := range len(body) {
		switch c := body[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("-._~+/", c) >= 0:
		default:
			return false
		}
	}
	return true
}

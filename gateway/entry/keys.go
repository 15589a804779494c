package entry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"sync/atomic"

	"tailgate/gateway/feed"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Role is what a key may do. A firm has accounts, an account has keys.
type Role uint8

// The roles.
const (
	Trade    Role = iota + 1 // enters orders of one account, and reads its orders and events
	DropCopy                 // reads the events of the accounts that it names, and nothing else of theirs
	Admin                    // administers; neither trades nor reads orders
)

// Key is what stands behind an API key.
type Key struct {
	Name     string // whose it is, for logs
	Role     Role
	Account  uint32   // Trade: number of its account
	Accounts []uint32 // DropCopy: numbers of the accounts whose events it reads
}

func (k *Key) equal(other *Key) bool {
	return k.Name == other.Name && k.Role == other.Role && k.Account == other.Account && slices.Equal(k.Accounts, other.Accounts)
}

// credential is a key in use.
type credential struct {
	Key
	throttle *throttle   // the account's; one without bounds for other roles
	streams  feed.Owner  // of events, over all sessions of the key
	revoked  atomic.Bool // the key was taken away
}

// keyring holds the keys of one moment. It is never changed once it is in use.
type keyring struct {
	byHash   map[KeyHash]*credential
	demo     *credential // of clients without a key; nil where there are keys that trade
	anywhere bool        // demo is not only for loopback clients
}

// lookup finds a key; the ring may be nil.
func (r *keyring) lookup(hash KeyHash) *credential {
	if r == nil {
		return nil
	}
	return r.byHash[hash]
}

// find says who a peer is, or returns a *transports.Fault.
func (r *keyring) find(key string, remote net.Addr) (*credential, error) {
	switch {
	case key != "":
		if who := r.byHash[HashKey(key)]; who != nil {
			return who, nil
		}
		if len(r.byHash) == 0 {
			return nil, transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "this gateway has no keys configured: connect without one")
		}
		return nil, transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "nobody has this API key")
	case r.demo == nil:
		return nil, transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "an API key is needed and none was sent")
	case r.anywhere || isLoopback(remote):
		return r.demo, nil
	default:
		return nil, transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "without an API key this gateway serves loopback clients only")
	}
}

// revoke marks everything of this ring, which may be nil, that is not in the next one, and reports whether there was any.
func (r *keyring) revoke(next *keyring) (some bool) {
	if r == nil {
		return false
	}
	for hash, who := range r.byHash {
		if next.byHash[hash] != who {
			who.revoked.Store(true)
			some = true
		}
	}
	if r.demo != nil && next.demo != r.demo {
		r.demo.revoked.Store(true)
		some = true
	}
	return some
}

// isLoopback tells local peers. The in-memory transport has no address.
func isLoopback(remote net.Addr) bool {
	switch a := remote.(type) {
	case nil:
		return true
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	default:
		return false
	}
}

// KeyHash is what is kept of an API key: its SHA-256. Keys are long random strings, so no slow hash is needed; the clear key is
// never stored or logged.
type KeyHash [sha256.Size]byte

// HashKey hashes a key as given by a client.
func HashKey(key string) KeyHash { return sha256.Sum256([]byte(key)) }

// ParseKeyHash reads 64 hexadecimal digits.
func ParseKeyHash(text string) (hash KeyHash, err error) {
	if len(text) != hex.EncodedLen(len(hash)) {
		return hash, fmt.Errorf("a key hash has %d hexadecimal digits (SHA-256), this has %d characters", hex.EncodedLen(len(hash)), len(text))
	}
	if _, err := hex.Decode(hash[:], []byte(text)); err != nil {
		return hash, fmt.Errorf("key hash: %w", err)
	}
	return hash, nil
}

// String is the hash in hexadecimal digits, as ParseKeyHash reads it.
func (h KeyHash) String() string { return hex.EncodeToString(h[:]) }

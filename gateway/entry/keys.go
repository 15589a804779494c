package entry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

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

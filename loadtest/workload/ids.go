package workload

import (
	"crypto/rand"
	"sync/atomic"
)

// An id is a prefix of PrefixLength random characters for each cell (36 bits: among 1,000 cells that a gateway sees in a day the chance
// that any two share one is 7 in a million) and a number of numberLength (36 bits: clients take them in blocks, so that it does not matter how unevenly they send), both in the 64
// characters that the contract allows; then as many fillers as the exact size asks for.
const (
	PrefixLength = 6
	numberLength = IDLength - PrefixLength
	alphabet     = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz-"
	filler       = '0'

	// MaxNumber is the greatest number of requests of a flow; beyond it ids would repeat.
	MaxNumber = 1<<(6*numberLength) - 1

	// idsAtOnce is how many ids are written with one allocation.
	idsAtOnce = 64
)

// RandomPrefix returns a fresh prefix from the system's random source.
func RandomPrefix() string {
	var b [PrefixLength]byte
	rand.Read(b[:]) // never returns an error
	for i := range b {
		b[i] = alphabet[b[i]&63]
	}
	return string(b[:])
}

// ids hands out the ids of one client.
type ids struct {
	prefix string
	taken  *atomic.Uint64 // numbers that are taken, of all clients
	number uint64         // of the next id
	block  string
	next   int
	buffer [idsAtOnce * maxIDLength]byte
}

// take returns the next id with the given length, IDLength to maxIDLength, and its number. Ids are cut from one string that is allocated for
// every idsAtOnce of them; none is ever written again, so whoever keeps one keeps it.
func (s *ids) take(length int) (string, uint64) {
	if s.next == idsAtOnce || s.block == "" {
		b := s.buffer[:0]
		s.number = s.taken.Add(idsAtOnce) - idsAtOnce
		n := s.number
		for range idsAtOnce {
			b = append(b, s.prefix...)
			for shift := 6 * (numberLength - 1); shift >= 0; shift -= 6 {
				b = append(b, alphabet[n>>shift&63])
			}
			for range maxIDLength - IDLength {
				b = append(b, filler)
			}
			n++
		}
		s.block, s.next = string(b), 0
	}
	start := s.next * maxIDLength
	n := s.number
	s.next++
	s.number++
	return s.block[start : start+length], n
}

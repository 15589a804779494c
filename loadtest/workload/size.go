package workload

import (
	"fmt"
	"math/bits"
)

// IDLength is the length of a client order id unless the exact size asks for another.
const IDLength = 12

// maxIDLength is what the contract allows.
const maxIDLength = 32

// MaxSize is the greatest encoded order that the contract allows.
const MaxSize = 1 << 20

// SizeError says that no order of the flow has the wanted size.
type SizeError struct{ Size, Smallest int }

// Error names the bound.
func (e *SizeError) Error() string {
	if e.Size > MaxSize {
		return fmt.Sprintf("size %d: the greatest order has %d bytes", e.Size, MaxSize)
	}
	return fmt.Sprintf("size %d: the smallest order has %d bytes (%d-character id, no tag)", e.Size, e.Smallest, IDLength)
}

// shape is how an order gets its size: the length of its id and of its tag, in bytes.
type shape struct{ id, tag int }

// fit finds the shape that brings a message to the wanted size; base is the size with an id of IDLength and without a tag. The id is as
// close to IDLength as can be: one more byte of tag can cost two of the message, where its length grows by a byte (and an empty tag is not
// encoded at all), so up to two sizes beside such a step are reached by a longer id.
func fit(base, size int) (shape, bool) {
	for id := IDLength; id <= maxIDLength; id++ {
		rest := size - base - (id - IDLength)
		if rest < 0 {
			break
		}
		if rest == 0 {
			return shape{id: id}, true
		}
		// A tag of n bytes takes 1 for its field number, 1 to 3 for its length, and n.
		for prefix := 1; prefix <= 3; prefix++ {
			if tag := rest - 1 - prefix; tag > 0 && varintLength(uint64(tag)) == prefix {
				return shape{id: id, tag: tag}, true
			}
		}
	}
	return shape{}, false
}

// varintLength is the encoded length of a base-128 varint, in bytes.
func varintLength(v uint64) int { return max((bits.Len64(v)+6)/7, 1) }

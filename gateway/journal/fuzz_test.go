package journal

import (
	"bytes"
	"math"
	"testing"
)

func sampleRecords() []record {
	return []record{
		{kind: kindEntry, lsn: 1, payload: []byte("new order")},
		{kind: kindEntry, lsn: math.MaxUint64, term: math.MaxUint64, timeNs: math.MinInt64, durable: math.MaxUint64, payload: nil},
		{kind: kindEntry, lsn: 2, term: 3, timeNs: 4, durable: 1, payload: make([]byte, 300)},
		{kind: kindCloseMark, lsn: 9, durable: 9},
	}
}

// FuzzRecord: what decodes encodes to the same bytes.
func FuzzRecord(f *testing.F) {
	for _, r := range sampleRecords() {
		b := make([]byte, recordHeaderBytes+len(r.payload))
		putRecord(b, 77, &r)
		f.Add(b, uint32(77))
		f.Add(b, uint32(78))
		f.Add(b[:len(b)-1], uint32(77))
	}
	f.Fuzz(func(t *testing.T, b []byte, salt uint32) {
		r, ok := decodeRecord(b, salt)
		if !ok {
			return
		}
		again := make([]byte, recordHeaderBytes+len(r.payload))
		putRecord(again, salt, &r)
		if !bytes.Equal(again, b[:len(again)]) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", b, r, again)
		}
		if _, ok := decodeRecord(b[:len(again)-1], salt); ok {
			t.Fatal("a record without its last byte decodes")
		}
	})
}

// FuzzSegmentHeader: what decodes encodes to the same bytes.
func FuzzSegmentHeader(f *testing.F) {
	var b [segmentHeaderBytes]byte
	segmentHeader{mode: SyncAlways, salt: 5, firstLSN: 100, term: 2, durable: 99, id: identity{1, 15: 2}, size: MinSegmentBytes}.put(b[:])
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeSegmentHeader(b)
		if err != nil {
			return
		}
		var again [segmentHeaderBytes]byte
		h.put(again[:])
		if !bytes.Equal(again[:], b[:segmentHeaderBytes]) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", b, h, again)
		}
	})
}

// FuzzState: what decodes encodes to the same bytes.
func FuzzState(f *testing.F) {
	var b [stateNoteBytes]byte
	for _, st := range []state{
		{number: 1, first: 1},
		{number: 3, newest: 5, size: MinSegmentBytes, durable: 9, first: 1, layout: 1},
		{number: 3, first: 7, term: 9, layout: 2},
		{id: identity{1, 15: 2}, number: 8, newest: 100, size: MaxSegmentBytes, durable: math.MaxUint64, first: 100, term: math.MaxUint64},
	} {
		st.put(b[:])
		if got, ok := decodeState(b[:]); !ok || got != st {
			f.Fatalf("%+v became %+v", st, got)
		}
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		st, ok := decodeState(b)
		if !ok {
			return
		}
		var again [stateNoteBytes]byte
		if n := st.put(again[:]); !bytes.Equal(again[:n], b[:n]) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", b, st, again)
		}
	})
}

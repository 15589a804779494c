package journal

import "slices"

// EncodeSegment returns what is written of a segment from LSN 1 with the given
// payloads and a known salt, EncodeRecord a record of it, and EncodeState the file
// that says what must be there of its journal, for tests that need what the public
// door does not write.
func EncodeSegment(mode SyncMode, payloads ...[]byte) []byte {
	var header [segmentHeaderBytes]byte
	segmentHeader{mode: mode, salt: testSalt, firstLSN: 1, size: MinSegmentBytes}.put(header[:])
	b := slices.Clone(header[:])
	for i, p := range payloads {
		b = append(b, EncodeRecord(uint64(i+1), 0, p)...)
	}
	return b
}

// EncodeRecord: see EncodeSegment.
func EncodeRecord(lsn, durable uint64, payload []byte) []byte {
	b := make([]byte, recordHeaderBytes+len(payload))
	putRecord(b, testSalt, &record{kind: kindEntry, lsn: lsn, durable: durable, payload: payload})
	return b
}

// EncodeState: see EncodeSegment.
func EncodeState(newest uint64, size int64, durable uint64) []byte {
	b := make([]byte, stateFileBytes)
	state{number: 2, newest: newest, size: size, durable: durable, first: 1}.put(b)
	return b
}

// Stopping is closed when Close has begun to stop what goes on beside it.
func Stopping(j *Journal) <-chan struct{} { return j.stop }

const testSalt = 7

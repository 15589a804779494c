package orders

// MaxIDBytes bounds a client's id, MaxSymbolBytes a symbol.
const (
	MaxIDBytes     = 32
	MaxSymbolBytes = 16
)

// ID is a client's id (of an order or of a request) held by value: 0 to 32 bytes. The zero ID means none. IDs are comparable.
type ID struct {
	length uint8
	bytes  [MaxIDBytes]byte
}

// ParseID copies s. ok is false when s is empty, longer than 32 bytes or has a byte outside [A-Za-z0-9_-].
func ParseID(s string) (id ID, ok bool) {
	if len(s) == 0 || len(s) > MaxIDBytes {
		return ID{}, false
	}
	for i := range len(s) {
		if !idByte[s[i]] {
			return ID{}, false
		}
	}
	id.length = uint8(copy(id.bytes[:], s))
	return id, true
}

// IsZero reports whether there is no id.
func (id *ID) IsZero() bool { return id.length == 0 }

// Bytes returns the id's bytes, which alias it.
func (id *ID) Bytes() []byte { return id.bytes[:id.length] }

// String copies the id.
func (id ID) String() string { return string(id.bytes[:id.length]) }

// Symbol names an instrument, held by value: 1 to 16 bytes. Symbols are comparable.
type Symbol struct {
	length uint8
	bytes  [MaxSymbolBytes]byte
}

// ParseSymbol copies s. ok is false when s is empty, longer than 16 bytes or has a byte outside [A-Z0-9._-].
func ParseSymbol(s string) (symbol Symbol, ok bool) {
	if len(s) == 0 || len(s) > MaxSymbolBytes {
		return Symbol{}, false
	}
	for i := range len(s) {
		if !symbolByte[s[i]] {
			return Symbol{}, false
		}
	}
	symbol.length = uint8(copy(symbol.bytes[:], s))
	return symbol, true
}

// IsZero reports whether there is no symbol.
func (s *Symbol) IsZero() bool { return s.length == 0 }

// Bytes returns the symbol's bytes, which alias it.
func (s *Symbol) Bytes() []byte { return s.bytes[:s.length] }

// String copies the symbol.
func (s Symbol) String() string { return string(s.bytes[:s.length]) }

var idByte, symbolByte = byteSets()

// byteSets are the alphabets of the contract as tables: one load a byte on the hot path.
func byteSets() (id, symbol [256]bool) {
	for c := range 256 {
		upper := 'A' <= c && c <= 'Z'
		digit := '0' <= c && c <= '9'
		id[c] = upper || digit || 'a' <= c && c <= 'z' || c == '_' || c == '-'
		symbol[c] = upper || digit || c == '.' || c == '_' || c == '-'
	}
	return id, symbol
}

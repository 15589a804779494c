package workload

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// What the flow looks like.
const (
	// BlockOrders is how many resting orders a client draws together: half buys, half sells, with equal quantities.
	BlockOrders = 8
	// QuantitySpread is the number of different quantities: the least that the instrument allows and up to QuantitySpread-1 lots more.
	QuantitySpread = 10
	// PriceSpread is how many ticks past the reference price an order goes at most.
	PriceSpread = 8
	// ImmediateShare is the share of orders that are immediate-or-cancel: about the mixture of takers that never rest.
	ImmediateShare = 0.25

	// tagSlack is by how much two tags of a client can be shifted against each other in the shared random bytes, so that an answer with
	// another request's tag is found out without writing a tag for each request.
	tagSlack = 4096

	// dealSeed keeps the draw of the clients' sizes apart from those of the clients, which go by their numbers.
	dealSeed = MaxClients
)

// Instrument is what the flow has to know of what it trades.
type Instrument struct {
	Symbol         string
	ReferencePrice int64 // in ticks; orders stay within PriceSpread of it
	MinNotional    int64 // in ticks x lots; 0 = no bound
}

// Config describes a flow.
type Config struct {
	Operation    transports.Operation // SubmitOrder or GetBook; 0 = SubmitOrder. What sizes, acknowledgements and shares say goes with orders alone
	Seed         uint64               // same seed, same flow, whatever the transport
	Prefix       string               // PrefixLength characters that no other run against the same gateway uses, see RandomPrefix
	Size         int                  // encoded bytes of every new order, exactly; ignored with Mix
	Mix          []Share              // several sizes, drawn independently for every new order
	ByClient     bool                 // with Mix: drawn once for every client instead, whose orders are then all of one size
	Clients      int                  // 1 to MaxClients
	Minimal      bool                 // ask for small acknowledgements, without the tag
	CancelShare  float64              // share of cancels, 0 to 1; CancelShare + ReplaceShare at most 1
	ReplaceShare float64              // share of replaces
	Instruments  []Instrument
	EchoOnly     bool // the peer is a bare echo: answers carry the id and the tag, and nothing else is checked
}

// Share is one size of a mix.
type Share struct {
	Size   int     // encoded bytes
	Weight float64 // above 0; a size's share is its weight by the sum of all
}

// MaxShares bounds the sizes of a mix: each has a table of some kilobytes for every instrument.
const MaxShares = 64

// MaxClients bounds the clients of a flow, so that ids cannot run out (see ids.go).
const MaxClients = 1 << 16

// Flow is the orders of one cell. Immutable, safe for concurrent use; each client draws from its own [Source].
type Flow struct {
	config Config
	below  []float64                                    // share of the sizes up to and with this one, rising to 1
	shapes [][][2*PriceSpread + 1][QuantitySpread]shape // by size, instrument, price - reference + PriceSpread, quantity - least
	least  []uint64                                     // least quantity, by instrument
	class  []int                                        // with ByClient: place in the mix of each client's size
	noise  []byte                                       // random bytes that tags are cut from; never written again
	ids    *atomic.Uint64
}

// New checks the configuration and prepares the flow. A size that cannot be had is a *SizeError.
func New(config Config) (*Flow, error) {
	switch {
	case config.Clients < 1 || config.Clients > MaxClients:
		return nil, fmt.Errorf("workload: %d clients: 1 to %d are allowed", config.Clients, MaxClients)
	case len(config.Prefix) != PrefixLength:
		return nil, fmt.Errorf("workload: id prefix %q has %d characters, not %d", config.Prefix, len(config.Prefix), PrefixLength)
	case !(config.CancelShare >= 0 && config.ReplaceShare >= 0 && config.CancelShare+config.ReplaceShare <= 1):
		return nil, fmt.Errorf("workload: shares of cancels (%v) and replaces (%v) must not be negative nor pass 1 together", config.CancelShare, config.ReplaceShare)
	case config.Operation != 0 && config.Operation != transports.SubmitOrder && config.Operation != transports.GetBook:
		return nil, fmt.Errorf("workload: no flow is made of %s", config.Operation)
	case config.Operation == transports.GetBook && config.EchoOnly:
		return nil, errors.New("workload: a bare echo has no book")
	case len(config.Instruments) == 0:
		return nil, errors.New("workload: the gateway has no instrument that is open")
	}
	f := &Flow{config: config, least: make([]uint64, len(config.Instruments)), ids: new(atomic.Uint64)}
	for i, instrument := range config.Instruments {
		f.least[i] = leastQuantity(instrument)
	}
	if config.Operation == transports.GetBook {
		return f, nil // it has one size
	}
	mix := config.Mix
	if len(mix) == 0 {
		mix = []Share{{Size: config.Size, Weight: 1}}
	}
	if err := f.weigh(mix); err != nil {
		return nil, err
	}
	if config.ByClient {
		f.deal(mix)
	}
	longest := 0
	for _, share := range mix {
		shapes, tag, err := f.shape(share.Size)
		if err != nil {
			return nil, err
		}
		f.shapes = append(f.shapes, shapes)
		longest = max(longest, tag)
	}
	if longest > 0 {
		f.noise = make([]byte, longest+tagSlack)
		// The noise is the same for every seed: it only has to be different at every offset, and not compressible.
		random := rand.NewChaCha8([32]byte{})
		if _, err := random.Read(f.noise); err != nil {
			return nil, fmt.Errorf("workload: %w", err)
		}
	}
	return f, nil
}

// weigh sums up the shares of a mix.
func (f *Flow) weigh(mix []Share) error {
	if len(mix) > MaxShares {
		return fmt.Errorf("workload: %d sizes in a mix: at most %d are allowed", len(mix), MaxShares)
	}
	total := 0.0
	for _, share := range mix {
		if !(share.Weight > 0) || math.IsInf(share.Weight, 1) {
			return fmt.Errorf("workload: size %d has the weight %v: above 0 is allowed", share.Size, share.Weight)
		}
		total += share.Weight
		f.below = append(f.below, total)
	}
	for i := range f.below {
		f.below[i] /= total
	}
	return nil
}

// deal gives every client a size, so that each size has its share of them to within one, in an order drawn by the seed: whatever else goes by the
// clients' numbers, accounts above all, must not go by size.
func (f *Flow) deal(mix []Share) {
	dealt := make([]int, len(mix))
	for client := range f.config.Clients {
		most, class := math.Inf(-1), 0
		below := 0.0
		for i := range mix {
			owed := (f.below[i]-below)*float64(client+1) - float64(dealt[i])
			below = f.below[i]
			if owed > most {
				most, class = owed, i
			}
		}
		dealt[class]++
		f.class = append(f.class, class)
	}
	rng := rand.New(rand.NewPCG(f.config.Seed, dealSeed))
	rng.Shuffle(len(f.class), func(i, j int) { f.class[i], f.class[j] = f.class[j], f.class[i] })
}

// shape finds how orders on every instrument get their size, and the longest tag among them.
func (f *Flow) shape(size int) (shapes [][2*PriceSpread + 1][QuantitySpread]shape, longest int, err error) {
	shapes = make([][2*PriceSpread + 1][QuantitySpread]shape, len(f.config.Instruments))
	smallest, fits := 0, size <= MaxSize
	for i, instrument := range f.config.Instruments {
		m := f.template(i)
		for p := range shapes[i] {
			m.Price = instrument.ReferencePrice + int64(p-PriceSpread)
			for q := range shapes[i][p] {
				m.Quantity = f.least[i] + uint64(q)
				base := proto.Size(m)
				smallest = max(smallest, base)
				shape, ok := fit(base, size)
				fits = fits && ok
				longest = max(longest, shape.tag)
				shapes[i][p][q] = shape
			}
		}
	}
	if !fits {
		return nil, 0, &SizeError{Size: size, Smallest: smallest}
	}
	return shapes, longest, nil
}

// leastQuantity is the smallest quantity whose notional the instrument takes at every price of the flow. Where prices can reach zero no
// quantity is enough, and 1 is as good as any.
func leastQuantity(i Instrument) uint64 {
	lowest := i.ReferencePrice - PriceSpread
	if i.MinNotional <= 0 || lowest <= 0 {
		return 1
	}
	return max(uint64((i.MinNotional+lowest-1)/lowest), 1)
}

// template is an order with an id of IDLength and no tag, quantity or price.
func (f *Flow) template(instrument int) *pb.SubmitOrderRequest {
	m := &pb.SubmitOrderRequest{
		ClientOrderId: "000000000000",
		Symbol:        f.config.Instruments[instrument].Symbol,
		Side:          pb.Side_SIDE_BUY,
		Type:          pb.OrderType_ORDER_TYPE_LIMIT,
		TimeInForce:   pb.TimeInForce_TIME_IN_FORCE_DAY,
	}
	if f.config.Minimal {
		m.AckDetail = pb.AckDetail_ACK_DETAIL_MINIMAL
	}
	return m
}

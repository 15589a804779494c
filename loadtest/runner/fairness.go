package runner

import "math"

// Fairness is how equally the clients of one size were served in a closed loop.
type Fairness struct {
	Size    int // encoded bytes of their orders; 0 where each order draws its own, or has none
	Clients int
	// Jain is the index of Jain, Chiu and Hawe (1984) over the clients' answers: the square of the sum by the number times the sum of the squares. 1 = all
	// had the same, 1/Clients = one had all; 0 where nobody had any.
	Jain           float64
	Min, Mean, Max float64 // answers a second of a client
}

// fairness is by size where every client has one, otherwise of all clients together.
func (r *run) fairness(clients []*client, seconds float64) []Fairness {
	if seconds <= 0 {
		return nil
	}
	list := []Fairness{{Size: r.cell.Flow.Size}}
	if len(r.cell.Flow.Mix) > 0 {
		list[0].Size = 0
	}
	if r.cell.Flow.ByClient {
		list = make([]Fairness, len(r.cell.Flow.Mix))
		for i, share := range r.cell.Flow.Mix {
			list[i].Size = share.Size
		}
	}
	squares := make([]float64, len(list))
	for _, c := range clients {
		i := max(c.source.Class(), 0)
		f, served := &list[i], float64(c.counted)/seconds
		if f.Clients == 0 {
			f.Min = math.Inf(1)
		}
		f.Clients++
		f.Min, f.Max = min(f.Min, served), max(f.Max, served)
		f.Mean += served
		squares[i] += served * served
	}
	served := list[:0]
	for i, f := range list {
		if f.Clients == 0 {
			continue // so few clients that this size has none
		}
		if squares[i] > 0 {
			f.Jain = f.Mean * f.Mean / (float64(f.Clients) * squares[i])
		}
		f.Mean /= float64(f.Clients)
		served = append(served, f)
	}
	return served
}

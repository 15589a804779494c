package matching_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"tailgate/matching"
)

// TestCombinations writes down what becomes of an order with every combination of
// terms, entered and replaced, and compares it with testdata/combinations.table,
// one line a combination ("any" where the five preventions come to the same). Both engines and the ledger run each. Go test -update
// rewrites the table; read the difference before you commit it.
func TestCombinations(t *testing.T) {
	const path = "testdata/combinations.table"
	var table strings.Builder
	if err := errors.Join(writeEntries(&table), writeReplaces(&table)); err != nil {
		t.Fatal(err)
	}
	got := table.String()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	if len(gotLines) != len(wantLines) {
		t.Errorf("%d lines, the table has %d", len(gotLines), len(wantLines))
	}
	wrong := 0
	for i := range min(len(gotLines), len(wantLines)) {
		if gotLines[i] != wantLines[i] {
			if wrong++; wrong <= 20 {
				t.Errorf("%s:%d\n got %s\nwant %s", path, i+1, gotLines[i], wantLines[i])
			}
		}
	}
	if wrong > 20 {
		t.Errorf("and %d lines more", wrong-20)
	}
}

const entriesHead = `# What becomes of an order at entry. It is: 9 buy 12@101 group=7, with the terms of
# the line (minimum: 8, display: 1), into a book in which rest, in this order:
#
#	1 sell 6@100 group=8 display=2
#	2 sell 3@100 group=7
#	3 sell 4@101 group=8
#
# "2 from 1" is a trade of 2 lots with order 1, "-3 of 2" are 3 lots of order 2
# canceled, "-3" 3 of its own; "rests 1+3" shows 1 lot and hides 3.
`

const replacesHead = `
# What becomes of an order by a replace. It was entered as: 9 buy 12@99 group=7, with
# the terms of the line (display: 3); 8 buy 5@99 came after it; then 1 lot of it was
# filled. On the other side the book is the same as above. "first" and "after 8" say
# where it stands at its price.
`

func writeEntries(table *strings.Builder) error {
	table.WriteString(entriesHead)
	row(table, "type", "tif", "post-only", "minimum", "display", "prevention", "outcome")
	for _, orderType := range []matching.OrderType{matching.Limit, matching.Market} {
		for _, tif := range timesInForce {
			for _, postOnly := range []bool{false, true} {
				for _, minimum := range []uint64{0, 8} {
					for _, display := range []uint64{0, 1} {
						err := rows(table, []any{orderType, tif, yes(postOnly), yes(minimum > 0), yes(display > 0)},
							func(prevention matching.SelfTradePrevention) (string, error) {
								return outcomeOf(&matching.Command{
									Kind: matching.Submit, Side: matching.Buy, Type: orderType, TimeInForce: tif,
									PostOnly: postOnly, SelfTradePrevention: prevention, Group: 7,
									OrderID: 9, Price: 101, Quantity: 12, DisplayQuantity: display, MinimumQuantity: minimum,
								})
							})
						if err != nil {
							return err
						}
					}
				}
			}
		}
	}
	return nil
}

func writeReplaces(table *strings.Builder) error {
	table.WriteString(replacesHead)
	row(table, "replace", "tif", "post-only", "", "display", "prevention", "outcome")
	for _, kind := range []struct {
		name     string
		quantity uint64
		price    int64
	}{
		{"same", 12, 99}, {"less", 9, 99}, {"more", 15, 99}, {"away", 12, 98}, {"across", 12, 101}, {"filled", 1, 99},
	} {
		for _, tif := range timesInForce[:2] {
			for _, postOnly := range []bool{false, true} {
				for _, display := range []uint64{0, 3} {
					err := rows(table, []any{kind.name, tif, yes(postOnly), "", yes(display > 0)},
						func(prevention matching.SelfTradePrevention) (string, error) {
							return outcomeOf(&matching.Command{Kind: matching.Replace, OrderID: 9, Price: kind.price, Quantity: kind.quantity},
								matching.Command{
									Kind: matching.Submit, Side: matching.Buy, Type: matching.Limit, TimeInForce: tif,
									PostOnly: postOnly, SelfTradePrevention: prevention, Group: 7,
									OrderID: 9, Price: 99, Quantity: 12, DisplayQuantity: display,
								},
								matching.Command{
									Kind: matching.Submit, Side: matching.Buy, Type: matching.Limit, TimeInForce: matching.Day,
									OrderID: 8, Price: 99, Quantity: 5,
								},
								matching.Command{
									Kind: matching.Submit, Side: matching.Sell, Type: matching.Limit, TimeInForce: matching.ImmediateOrCancel,
									OrderID: 7, Price: 99, Quantity: 1,
								})
						})
					if err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// rows writes one line a prevention, or a single one when all come to the same.
func rows(table *strings.Builder, columns []any, outcome func(matching.SelfTradePrevention) (string, error)) error {
	outcomes := make([]string, len(preventions))
	same := true
	for i, prevention := range preventions {
		var err error
		if outcomes[i], err = outcome(prevention); err != nil {
			return err
		}
		same = same && outcomes[i] == outcomes[0]
	}
	if same {
		row(table, append(columns, "any", outcomes[0])...)
		return nil
	}
	for i, prevention := range preventions {
		row(table, append(slices.Clip(columns), prevention, outcomes[i])...)
	}
	return nil
}

// combinationBook makes the book of the table's heads and applies more to it.
func combinationBook(more ...matching.Command) (*twins, error) {
	w, err := newTwins(matching.Options{MaxOrders: 8, MaxInstruments: 1}, 0)
	if err != nil {
		return nil, err
	}
	sell := func(id, quantity, display uint64, price int64, group uint32) matching.Command {
		return matching.Command{
			Kind: matching.Submit, Side: matching.Sell, Type: matching.Limit, TimeInForce: matching.GoodTillCancel,
			OrderID: id, Price: price, Quantity: quantity, DisplayQuantity: display, Group: group,
		}
	}
	for _, cmd := range append([]matching.Command{sell(1, 6, 2, 100, 8), sell(2, 3, 0, 100, 7), sell(3, 4, 0, 101, 8)}, more...) {
		events, err := w.apply(&cmd)
		if err != nil {
			return nil, err
		}
		if events[0].Kind != matching.Accepted {
			return nil, fmt.Errorf("%+v: %v", cmd, events[0].Reason)
		}
	}
	return w, nil
}

// outcomeOf applies the command to the book of the table's heads, after those that
// come before it, and says in words what became of its order.
func outcomeOf(cmd *matching.Command, before ...matching.Command) (string, error) {
	w, err := combinationBook(before...)
	if err != nil {
		return "", err
	}
	events, err := w.apply(cmd)
	if err != nil {
		return "", err
	}
	if events[0].Kind == matching.Rejected {
		return "refused: " + events[0].Reason.String(), nil
	}
	var words []string
	for _, ev := range events[1:] {
		switch {
		case ev.Kind == matching.Trade:
			words = append(words, fmt.Sprintf("%d from %d", ev.Quantity, ev.MakerID))
		case ev.OrderID != cmd.OrderID:
			words = append(words, fmt.Sprintf("-%d of %d", ev.Quantity, ev.OrderID))
		default:
			words = append(words, fmt.Sprintf("-%d", ev.Quantity))
		}
	}
	o, rests := w.fast.Order(cmd.OrderID)
	if !rests {
		return strings.Join(append(words, "gone"), ", "), nil
	}
	place := "first"
	for other := range w.fast.Orders() {
		if other.ID == o.ID {
			break
		}
		if other.Side == o.Side && other.Price == o.Price {
			place = fmt.Sprintf("after %d", other.ID)
		}
	}
	return strings.Join(append(words, fmt.Sprintf("rests %s@%d, %s", shownAndHidden(o), o.Price, place)), ", "), nil
}

func row(table *strings.Builder, columns ...any) {
	line := fmt.Sprintf("%-8v %-4v %-10v %-8v %-8v %-17v %v", columns...)
	table.WriteString(strings.TrimRight(line, " ") + "\n")
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "-"
}

package matching_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"tailgate/matching"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/*.txt")

// TestScripts runs the scripts in testdata. A script is a row of blocks with a
// blank line between them. A block has comments (#), commands, a line of four
// dashes, and what these commands must print: their events, then the book.
//
//	engine [cancel-new] [orders=N] [levels=N]        starts over, with an empty book 1
//	instrument N                                     opens another book
//	submit ID SIDE TYPE TIME_IN_FORCE QTY@PRICE [TERM ...] [on N]
//	cancel ID [on N]
//	replace ID QTY@PRICE [on N]
//	command KIND                                     a command of this kind, all else zero
//
// A TERM is post-only, display=LOTS, minimum=LOTS, group=NUMBER or the name of a
// self-trade prevention. Sequence numbers count the commands since the engine line.
// A word that names no side, type, time in force or prevention stands for a value
// outside the enumeration.
// In the book a level reads SIDE QTY@PRICE: ID=LEAVES ..., best first, and an order
// that hides something ID=SHOWN+HIDDEN.
// Go test -update rewrites what is expected; read the difference before you commit it.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts in testdata: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := runScript(string(text))
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if got == string(text) {
				return
			}
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(text), "\n")
			for i := range max(len(gotLines), len(wantLines)) {
				if i >= len(gotLines) || i >= len(wantLines) || gotLines[i] != wantLines[i] {
					t.Fatalf("%s:%d: the script stops being true here; got\n%s", path, i+1, got)
				}
			}
		})
	}
}

const scriptRule = "----"

// runScript returns the script with its expected parts replaced by what happens.
func runScript(text string) (string, error) {
	var out []string
	var s scriptRun
	for block := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n\n") {
		input, _, found := strings.Cut(block+"\n", scriptRule+"\n")
		if !found {
			return "", fmt.Errorf("block without a line %q: %q", scriptRule, block)
		}
		lines := []string{}
		for line := range strings.Lines(input) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			events, err := s.run(strings.Fields(line))
			if err != nil {
				return "", fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
			}
			lines = append(lines, events...)
		}
		if s.twins == nil {
			return "", errors.New("the first command is not engine")
		}
		lines = append(lines, s.book()...)
		out = append(out, input+scriptRule+"\n"+strings.Join(lines, "\n")+"\n")
	}
	return strings.Join(out, "\n"), nil
}

// scriptRun is one script under way. Both engines run it.
type scriptRun struct {
	twins    *twins
	sequence uint64
}

func (s *scriptRun) run(words []string) ([]string, error) {
	if len(words) == 0 {
		return nil, errors.New("empty line")
	}
	if words[0] == "engine" {
		return nil, s.engine(words[1:])
	}
	if s.twins == nil {
		return nil, errors.New("there is no engine yet")
	}
	if words[0] == "instrument" && len(words) == 2 {
		number, err := strconv.ParseUint(words[1], 10, 32)
		if err != nil {
			return nil, err
		}
		s.twins.naive.AddInstrument(uint32(number))
		s.twins.instruments = append(s.twins.instruments, uint32(number))
		return nil, s.twins.fast.AddInstrument(uint32(number))
	}
	cmd, err := parseCommand(words)
	if err != nil {
		return nil, err
	}
	s.sequence++
	cmd.Sequence = s.sequence
	events, err := s.twins.apply(&cmd)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, ev := range events {
		lines = append(lines, fmt.Sprintf("%d %s", ev.Sequence, describe(&ev)))
	}
	return lines, nil
}

func (s *scriptRun) engine(words []string) error {
	options := matching.Options{MaxOrders: 64, MaxLevels: 64, MaxInstruments: 16}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch name {
		case "cancel-new":
			options.ModifyIsCancelNew = true
		case "orders":
			options.MaxOrders, err = strconv.Atoi(value)
			options.MaxLevels = options.MaxOrders
		case "levels":
			options.MaxLevels, err = strconv.Atoi(value)
		default:
			err = fmt.Errorf("unknown option %q", word)
		}
		if err != nil {
			return err
		}
	}
	var err error
	s.sequence = 0
	s.twins, err = newTwins(options, 1)
	return err
}

func parseCommand(words []string) (cmd matching.Command, err error) {
	cmd.Instrument = 1
	if n := len(words); n > 2 && words[n-2] == "on" {
		number, err := strconv.ParseUint(words[n-1], 10, 32)
		if err != nil {
			return cmd, err
		}
		cmd.Instrument = uint32(number)
		words = words[:n-2]
	}
	var terms string
	switch {
	case words[0] == "submit" && len(words) >= 6:
		cmd.Kind = matching.Submit
		cmd.Side = valueNamed(words[2], matching.Buy, matching.Sell)
		cmd.Type = valueNamed(words[3], matching.Limit, matching.Market)
		cmd.TimeInForce = valueNamed(words[4], timesInForce...)
		terms = words[5]
		for _, word := range words[6:] {
			if err := parseTerm(word, &cmd); err != nil {
				return cmd, err
			}
		}
	case words[0] == "cancel" && len(words) == 2:
		cmd.Kind = matching.Cancel
	case words[0] == "replace" && len(words) == 3:
		cmd.Kind = matching.Replace
		terms = words[2]
	case words[0] == "command" && len(words) == 2:
		kind, err := strconv.ParseUint(words[1], 10, 8)
		cmd.Kind = matching.CommandKind(kind)
		return cmd, err
	default:
		return cmd, errors.New("not a command")
	}
	if cmd.OrderID, err = strconv.ParseUint(words[1], 10, 64); err != nil || terms == "" {
		return cmd, err
	}
	quantity, price, _ := strings.Cut(terms, "@")
	if cmd.Quantity, err = strconv.ParseUint(quantity, 10, 64); err != nil {
		return cmd, err
	}
	cmd.Price, err = strconv.ParseInt(price, 10, 64)
	return cmd, err
}

var (
	timesInForce = []matching.TimeInForce{matching.Day, matching.GoodTillCancel, matching.ImmediateOrCancel, matching.FillOrKill}
	preventions  = []matching.SelfTradePrevention{
		matching.AllowSelfTrade, matching.CancelTaker, matching.CancelMaker, matching.CancelBoth, matching.Decrement,
	}
)

func parseTerm(word string, cmd *matching.Command) (err error) {
	name, value, isPair := strings.Cut(word, "=")
	if !isPair {
		if word == "post-only" {
			cmd.PostOnly = true
		} else if cmd.SelfTradePrevention = valueNamed(word, preventions...); cmd.SelfTradePrevention == 0 {
			cmd.SelfTradePrevention = matching.Decrement + 1
		}
		return nil
	}
	number, err := strconv.ParseUint(value, 10, 64)
	switch name {
	case "display":
		cmd.DisplayQuantity = number
	case "minimum":
		cmd.MinimumQuantity = number
	case "group":
		cmd.Group = uint32(number)
	default:
		return fmt.Errorf("unknown term %q", word)
	}
	return err
}

// valueNamed returns the value whose name the word is, else zero.
func valueNamed[T fmt.Stringer](word string, values ...T) (none T) {
	for _, v := range values {
		if v.String() == word {
			return v
		}
	}
	return none
}

func describe(ev *matching.Event) string {
	order := fmt.Sprintf("%v %d %v %d@%d", ev.Kind, ev.OrderID, ev.Side, ev.Quantity, ev.Price)
	switch ev.Kind {
	case matching.Accepted:
		return order
	case matching.Trade:
		return fmt.Sprintf("%s with %d, leaves %d and %d", order, ev.MakerID, ev.Leaves, ev.MakerLeaves)
	case matching.Canceled:
		if ev.Reason == matching.ReasonNone {
			return order
		}
		order += ": " + ev.Reason.String()
		if ev.Reason == matching.ReasonSelfTrade && ev.MakerID != ev.OrderID {
			order += fmt.Sprintf(" with %d", ev.MakerID)
		}
		if ev.Leaves > 0 {
			order += fmt.Sprintf(", leaves %d", ev.Leaves)
		}
		return order
	case matching.Replaced:
		place := "keeps its place"
		if ev.LostPriority {
			place = "goes to the back"
		}
		return fmt.Sprintf("%s, leaves %d, %s", order, ev.Leaves, place)
	}
	refusal := fmt.Sprintf("%v %d: %v", ev.Kind, ev.OrderID, ev.Reason)
	if ev.Leaves > 0 {
		refusal += fmt.Sprintf(", leaves %d", ev.Leaves)
	}
	return refusal
}

func (s *scriptRun) book() []string {
	var lines []string
	var last matching.Order
	for o := range s.twins.fast.Orders() {
		if len(lines) == 0 || o.Instrument != last.Instrument || o.Side != last.Side || o.Price != last.Price {
			var level matching.Level
			for _, level = range s.twins.fast.Depth(o.Instrument, o.Side, s.twins.fast.Resting(), nil) {
				if level.Price == o.Price {
					break
				}
			}
			lines = append(lines, fmt.Sprintf("book %d %v %d@%d:", o.Instrument, o.Side, level.Quantity, level.Price))
		}
		lines[len(lines)-1] += fmt.Sprintf(" %d=%s", o.ID, shownAndHidden(o))
		last = o
	}
	if len(lines) == 0 {
		return []string{"book empty"}
	}
	return lines
}

func shownAndHidden(o matching.Order) string {
	if o.Shown == o.Leaves {
		return strconv.FormatUint(o.Leaves, 10)
	}
	return fmt.Sprintf("%d+%d", o.Shown, o.Leaves-o.Shown)
}

package matching_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tailgate/matching"
)

// The external flows are order streams with known right answers, made by others
// (github.com/flash1-dev/matching-engine-benchmark). They are read from the
// folder that this variable names and are no part of the repository.
const flowDirVariable = "MATCHING_FLOW_DIR"

const (
	flowOrders = ".orders.csv.gz"
	flowHash   = ".reports.sha256"
	flowText   = ".reports.txt.gz"
	flowScript = "scripted.json"
)

func TestExternalFlows(t *testing.T) {
	dir := os.Getenv(flowDirVariable)
	if dir == "" {
		t.Skipf("%s is unset: name a folder with *%s files or %s to run them", flowDirVariable, flowOrders, flowScript)
	}
	names, err := flowNames(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			if err := checkFlow(dir, name); err != nil {
				t.Fatal(err)
			}
		})
	}
	scripts, err := readScripts(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range scripts {
		t.Run(script.Name, func(t *testing.T) {
			if err := script.check(); err != nil {
				t.Fatal(err)
			}
		})
	}
	if len(names)+len(scripts) == 0 {
		t.Fatalf("%s=%s holds neither *%s nor %s: nothing was tested", flowDirVariable, dir, flowOrders, flowScript)
	}
}

// flowNames lists the cases of a folder and leaves its other files alone.
func flowNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), flowOrders); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

// checkFlow runs one case and compares its report with the hash, and with the
// text where there is one, so that a difference has a line number.
func checkFlow(dir, name string) error {
	commands, err := readFlow(filepath.Join(dir, name+flowOrders))
	if err != nil {
		return err
	}
	hash, err := os.ReadFile(filepath.Join(dir, name+flowHash))
	if err != nil {
		return fmt.Errorf("orders without expectations: %w", err)
	}
	report, err := canonicalReport(commands, nil)
	if err != nil {
		return err
	}
	wantText, err := readGzip(filepath.Join(dir, name+flowText))
	if err == nil {
		if err := compareLines(report, strings.Split(string(wantText), "\n")); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	sum := sha256.Sum256([]byte(strings.Join(report, "\n")))
	if got, want := hex.EncodeToString(sum[:]), strings.TrimSpace(string(hash)); got != want {
		return fmt.Errorf("SHA-256 of the report is %s, want %s", got, want)
	}
	return nil
}

func compareLines(got, want []string) error {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Errorf("report line %d is %q, want %q", i+1, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("report has %d lines, want %d", len(got), len(want))
	}
	return nil
}

func readGzip(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

// flowMessage is one message in the form both kinds of case use.
type flowMessage struct {
	Type    uint64 `json:"type"`
	Side    uint64 `json:"side"`
	IOC     uint64 `json:"ioc"`
	Qty     uint64 `json:"qty"`
	OrderID uint64 `json:"order_id"`
	Price   int64  `json:"price"`
}

func (m flowMessage) command(sequence uint64) (matching.Command, error) {
	cmd := matching.Command{
		Kind: matching.Submit, Side: matching.Buy, Type: matching.Limit, TimeInForce: matching.GoodTillCancel,
		Sequence: sequence, OrderID: m.OrderID, Price: m.Price, Quantity: m.Qty,
	}
	if m.Type > 2 || m.Side > 1 || m.IOC > 1 {
		return cmd, fmt.Errorf("message %d: type %d, side %d or ioc %d is not in the format", sequence, m.Type, m.Side, m.IOC)
	}
	cmd.Kind += matching.CommandKind(m.Type)
	cmd.Side += matching.Side(m.Side)
	if m.IOC == 1 {
		cmd.TimeInForce = matching.ImmediateOrCancel
	}
	return cmd, nil
}

func readFlow(path string) ([]matching.Command, error) {
	text, err := readGzip(path)
	if err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if header := "type,seq,order_id,side,ioc,qty,price"; len(rows) == 0 || strings.Join(rows[0], ",") != header {
		return nil, fmt.Errorf("%s: the first line is not %q", path, header)
	}
	var commands []matching.Command
	for i, row := range rows[1:] {
		var field [6]uint64
		var errs [7]error
		for j := range field {
			field[j], errs[j] = strconv.ParseUint(row[j], 10, 64)
		}
		message := flowMessage{Type: field[0], OrderID: field[2], Side: field[3], IOC: field[4], Qty: field[5]}
		message.Price, errs[6] = strconv.ParseInt(row[6], 10, 64)
		cmd, err := message.command(field[1])
		if err := errors.Join(append(errs[:], err)...); err != nil {
			return nil, fmt.Errorf("%s line %d: %w", path, i+2, err)
		}
		commands = append(commands, cmd)
	}
	return commands, nil
}

func flowEngine() (*matching.Engine, error) {
	engine, err := matching.NewEngine(matching.Options{ModifyIsCancelNew: true})
	if err != nil {
		return nil, err
	}
	return engine, engine.AddInstrument(0)
}

// canonicalReport applies the commands and writes the events as the lines of the
// flows' report text. After each command it calls after, if there is one.
func canonicalReport(commands []matching.Command, after func(i int, e *matching.Engine) error) ([]string, error) {
	engine, err := flowEngine()
	if err != nil {
		return nil, err
	}
	type line struct {
		sequence uint64
		kind     int
		text     string
	}
	var lines []line
	var events []matching.Event
	for i := range commands {
		cmd := &commands[i]
		events = engine.Apply(cmd, events[:0])
		for _, ev := range events {
			kind, text, err := canonicalLine(cmd, &ev)
			if err != nil {
				return nil, err
			}
			lines = append(lines, line{cmd.Sequence, kind, text})
		}
		if after != nil {
			if err := after(i, engine); err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.sequence, b.sequence), cmp.Compare(a.kind, b.kind))
	})
	report := make([]string, len(lines))
	for i, l := range lines {
		report[i] = l.text
	}
	return report, nil
}

func canonicalLine(cmd *matching.Command, ev *matching.Event) (int, string, error) {
	side := ev.Side - matching.Buy
	switch {
	case ev.Kind == matching.Accepted:
		return 0, fmt.Sprintf("0,%d,%d,%d,%d,%d", ev.Sequence, side, ev.OrderID, ev.Price, ev.Quantity), nil
	case ev.Kind == matching.Trade:
		return 1, fmt.Sprintf("1,%d,%d,%d,%d,%d", ev.Sequence, ev.Price, ev.Quantity, ev.MakerID, ev.OrderID), nil
	case ev.Kind == matching.Canceled:
		return 2, fmt.Sprintf("2,%d,%d,%d,%d", ev.Sequence, side, ev.OrderID, ev.Price), nil
	case ev.Kind == matching.Replaced:
		return 3, fmt.Sprintf("3,%d,%d,%d,%d,%d", ev.Sequence, side, ev.OrderID, ev.Price, ev.Leaves), nil
	case ev.Kind == matching.Rejected && ev.Reason == matching.ReasonUnknownOrder && cmd.Kind == matching.Cancel:
		return 4, fmt.Sprintf("4,%d,%d", ev.Sequence, ev.OrderID), nil
	case ev.Kind == matching.Rejected && ev.Reason == matching.ReasonUnknownOrder && cmd.Kind == matching.Replace:
		return 5, fmt.Sprintf("5,%d,%d", ev.Sequence, ev.OrderID), nil
	}
	return 0, "", fmt.Errorf("message %d: %v (%v) has no line in the report format", ev.Sequence, ev.Kind, ev.Reason)
}

// flowScriptCase is one case of scripted.json.
type flowScriptCase struct {
	Name     string        `json:"name"`
	Messages []flowMessage `json:"messages"`
	Reports  []string      `json:"reports"`
	Book     []flowBest    `json:"book"`
}

type flowBest struct {
	Bid    *int64 `json:"bid"`
	BidQty uint64 `json:"bid_qty"`
	Ask    *int64 `json:"ask"`
	AskQty uint64 `json:"ask_qty"`
}

func readScripts(dir string) ([]flowScriptCase, error) {
	path := filepath.Join(dir, flowScript)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var file struct {
		Cases []flowScriptCase `json:"cases"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(file.Cases) == 0 {
		return nil, fmt.Errorf("%s holds no case", path)
	}
	return file.Cases, nil
}

func (c *flowScriptCase) check() error {
	if len(c.Messages) == 0 || len(c.Book) != len(c.Messages) {
		return fmt.Errorf("%d messages with %d books: want one book after each message", len(c.Messages), len(c.Book))
	}
	var commands []matching.Command
	for i, message := range c.Messages {
		cmd, err := message.command(uint64(i))
		if err != nil {
			return err
		}
		commands = append(commands, cmd)
	}
	report, err := canonicalReport(commands, func(i int, e *matching.Engine) error {
		bid, askErr := checkBest(e, matching.Buy, c.Book[i].Bid, c.Book[i].BidQty), checkBest(e, matching.Sell, c.Book[i].Ask, c.Book[i].AskQty)
		if err := errors.Join(bid, askErr); err != nil {
			return fmt.Errorf("after message %d: %w", i, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return compareLines(report, c.Reports)
}

func checkBest(e *matching.Engine, side matching.Side, price *int64, quantity uint64) error {
	best, ok := e.Best(0, side)
	if ok != (price != nil) || ok && best.Price != *price || best.Quantity != quantity {
		want := "an empty side"
		if price != nil {
			want = fmt.Sprintf("%d @ %d", quantity, *price)
		}
		return fmt.Errorf("best %v is %d @ %d (present: %t), want %s", side, best.Quantity, best.Price, ok, want)
	}
	return nil
}

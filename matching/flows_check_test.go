package matching_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFlowChecks holds the judge of the external flows to account: a case made
// here by hand passes, and every way to spoil it is noticed.
func TestFlowChecks(t *testing.T) {
	const orders = "type,seq,order_id,side,ioc,qty,price\n" +
		"0,0,1,1,0,10,100\n" + // sell 10 at 100
		"0,1,2,0,1,15,101\n" + // buy 15 immediate or cancel
		"2,2,1,1,0,5,99\n" + // modify of a filled order
		"1,3,7,0,0,0,0\n" // cancel of an unknown one
	const report = "0,0,1,1,100,10\n0,1,0,2,101,15\n1,1,100,10,1,2\n2,1,0,2,101\n5,2,1\n4,3,7"
	sum := sha256.Sum256([]byte(report))
	good := map[string]string{
		flowOrders: zip(t, orders),
		flowHash:   hex.EncodeToString(sum[:]) + "\n",
		flowText:   zip(t, report),
	}
	for _, test := range []struct {
		name  string
		spoil func(files map[string]string)
		want  string // in the error; empty = none
	}{
		{"as it is", func(map[string]string) {}, ""},
		{"no text", func(f map[string]string) { delete(f, flowText) }, ""},
		{"one digit of the hash", func(f map[string]string) {
			f[flowHash] = flip(f[flowHash])
		}, "SHA-256 of the report"},
		{"one digit of the hash, no text", func(f map[string]string) {
			f[flowHash] = flip(f[flowHash])
			delete(f, flowText)
		}, "SHA-256 of the report"},
		{"an empty hash", func(f map[string]string) { f[flowHash] = "" }, "SHA-256 of the report"},
		{"no hash", func(f map[string]string) { delete(f, flowHash) }, "orders without expectations"},
		{"another line in the text", func(f map[string]string) {
			f[flowText] = zip(t, strings.Replace(report, "1,1,100,10,1", "1,1,101,10,1", 1))
		}, "report line 3"},
		{"a line less in the text", func(f map[string]string) {
			f[flowText] = zip(t, strings.TrimSuffix(report, "\n4,3,7"))
		}, "report has 6 lines, want 5"},
		{"text cut off", func(f map[string]string) { f[flowText] = f[flowText][:20] }, "unexpected EOF"},
		{"a quantity in the orders", func(f map[string]string) {
			f[flowOrders] = zip(t, strings.Replace(orders, ",15,101", ",14,101", 1))
			delete(f, flowText)
		}, "SHA-256 of the report"},
		{"a message type", func(f map[string]string) {
			f[flowOrders] = zip(t, strings.Replace(orders, "1,3,7", "3,3,7", 1))
		}, "not in the format"},
		{"a number", func(f map[string]string) {
			f[flowOrders] = zip(t, strings.Replace(orders, "1,3,7", "1,3,x", 1))
		}, "line 5"},
		{"the header", func(f map[string]string) {
			f[flowOrders] = zip(t, strings.Replace(orders, "ioc,qty", "qty,ioc", 1))
		}, "first line"},
		{"a duplicate id", func(f map[string]string) {
			f[flowOrders] = zip(t, orders+"0,4,9,0,0,1,1\n0,5,9,0,0,1,1\n")
		}, "has no line in the report format"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, files := t.TempDir(), maps.Clone(good)
			test.spoil(files)
			for suffix, text := range files {
				write(t, filepath.Join(dir, "case"+suffix), text)
			}
			write(t, filepath.Join(dir, "README.md"), "left alone")
			names, err := flowNames(dir)
			if err != nil || len(names) != 1 || names[0] != "case" {
				t.Fatalf("the folder's cases are %q, %v", names, err)
			}
			expectError(t, checkFlow(dir, "case"), test.want)
		})
	}
}

// TestFlowScriptChecks does the same for scripted.json.
func TestFlowScriptChecks(t *testing.T) {
	const good = `{"cases": [{"name": "one", "note": "ignored",
		"messages": [{"type": 0, "side": 0, "ioc": 0, "qty": 10, "order_id": 1, "price": 100}],
		"reports": ["0,0,0,1,100,10"],
		"book": [{"bid": 100, "bid_qty": 10, "ask": null, "ask_qty": 0}]}]}`
	for _, test := range []struct{ name, old, new, want string }{
		{"as it is", "", "", ""},
		{"price in the report", "1,100,10", "1,101,10", "report line 1"},
		{"no report", `"0,0,0,1,100,10"`, "", "report has 1 lines, want 0"},
		{"best quantity", `"bid_qty": 10`, `"bid_qty": 9`, "after message 0"},
		{"best price", `"bid": 100`, `"bid": 99`, "after message 0"},
		{"side not empty", `"ask": null`, `"ask": 101`, "after message 0"},
		{"side empty", `"bid": 100`, `"bid": null`, "after message 0"},
		{"no book", `"book"`, `"books"`, "want one book after each message"},
		{"no messages", `"messages"`, `"message"`, "want one book after each message"},
		{"side", `"side": 0`, `"side": 2`, "not in the format"},
		{"no cases", `"cases"`, `"case"`, "holds no case"},
		{"cut off", `}]}]}`, ``, "unexpected end"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, flowScript), strings.Replace(good, test.old, test.new, 1))
			scripts, err := readScripts(dir)
			if err == nil {
				if len(scripts) != 1 || scripts[0].Name != "one" {
					t.Fatalf("the file's cases are %+v", scripts)
				}
				err = scripts[0].check()
			}
			expectError(t, err, test.want)
		})
	}
}

func expectError(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil {
		t.Errorf("failed: %v", err)
	}
	if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("the error is %v, want one with %q", err, want)
	}
}

// flip changes the first digit of a hash.
func flip(hash string) string {
	if hash[0] == '0' {
		return "1" + hash[1:]
	}
	return "0" + hash[1:]
}

func zip(t *testing.T, text string) string {
	t.Helper()
	var buffer bytes.Buffer
	writer := gzip.NewWriter(&buffer)
	if _, err := writer.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.String()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

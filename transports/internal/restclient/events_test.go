package restclient

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// readEvents reads a stream as the client does, as pairs of name and data.
func readEvents(text string) (events [][2]string, err error) {
	r := newEventReader(strings.NewReader(text))
	for {
		name, data, err := r.next()
		if err != nil {
			return events, err
		}
		events = append(events, [2]string{name, string(data)})
	}
}

func FuzzEventReader(f *testing.F) {
	f.Add("id: 1-1\nevent: execution\ndata: {}\n\n:\n\nretry: 1\n\ndata: a\ndata: b\n\n")
	f.Add("data")
	f.Add("event: x\n\ndata: y\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		events, err := readEvents(text)
		if err == nil {
			t.Fatal("a stream without an end")
		}
		// What was read, written in full, reads the same.
		var again strings.Builder
		for _, e := range events {
			fmt.Fprintf(&again, "event: %s\n", e[0])
			for line := range strings.SplitSeq(e[1], "\n") {
				fmt.Fprintf(&again, "data: %s\n", line)
			}
			again.WriteString("\n")
		}
		if back, _ := readEvents(again.String()); !reflect.DeepEqual(back, events) {
			t.Fatalf("%q gives %q, which gives %q", text, events, back)
		}
	})
}

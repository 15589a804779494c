package all_test

import (
	"strings"
	"testing"

	"tailgate/transports/all"
)

// TestSpecsReadBack: every transport with every choice it lists is read, and its own text gives the same again.
func TestSpecsReadBack(t *testing.T) {
	for _, transport := range all.All() {
		var texts []string
		for _, flow := range append([]string{""}, transport.Flows...) {
			if flow == all.Semaphore {
				flow += "=50"
			}
			for _, engine := range append([]string{""}, transport.Engines...) {
				choices := strings.Trim(flow+","+engine, ",")
				texts = append(texts, strings.TrimSuffix(transport.Name+":"+choices, ":"))
			}
		}
		for _, protocol := range transport.Protocols {
			texts = append(texts, transport.Name+":"+protocol)
			for _, encoding := range transport.Encodings {
				texts = append(texts, transport.Name+":"+protocol+","+encoding)
			}
		}
		for _, encoding := range transport.Encodings {
			texts = append(texts, transport.Name+":"+encoding)
		}
		for _, text := range texts {
			spec, err := all.Parse(text)
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			again, err := all.Parse(spec.String())
			if err != nil || again.Flow != spec.Flow || again.FlowLimit != spec.FlowLimit || again.Engine != spec.Engine || again.Protocol != spec.Protocol || again.Encoding != spec.Encoding {
				t.Errorf("%s reads as %q, and that as %+v: %v", text, spec, again, err)
			}
			if strings.Contains(text, "=50") != (spec.FlowLimit == 50) {
				t.Errorf("%s has the limit %d", text, spec.FlowLimit)
			}
		}
	}
}

// TestSpecsRefused: what is wrong is named, with what is allowed.
func TestSpecsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"pigeon":          "unknown transport \"pigeon\": allowed are " + all.Names()[0],
		"tcp:fast":        "allowed for tcp are credit, ",
		"tcp:credit=5":    "only semaphore=N with N from 1",
		"tcp:semaphore":   "needs its limit",
		"tcp:none,credit": "both \"none\" and \"credit\" are given",
	} {
		if _, err := all.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

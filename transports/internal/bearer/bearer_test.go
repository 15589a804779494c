package bearer_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/bearer"
)

func TestKey(t *testing.T) {
	for _, c := range []struct {
		name    string
		headers []string
		key     string
		refused bool
	}{
		{"none", nil, "", false},
		{"usual", []string{"Bearer abc"}, "abc", false},
		{"scheme in any case", []string{"bEARER abc"}, "abc", false},
		{"several spaces", []string{"Bearer   abc"}, "abc", false},
		{"padding", []string{"Bearer a.b-c_d~e+f/g=="}, "a.b-c_d~e+f/g==", false},
		{"two headers", []string{"Bearer abc", "Bearer abc"}, "", true},
		{"another scheme", []string{"Basic YTpi"}, "", true},
		{"scheme alone", []string{"Bearer"}, "", true},
		{"empty key", []string{"Bearer "}, "", true},
		{"empty header", []string{""}, "", true},
		{"padding alone", []string{"Bearer =="}, "", true},
		{"padding inside", []string{"Bearer a=b"}, "", true},
		{"space behind", []string{"Bearer abc "}, "", true},
		{"two keys", []string{"Bearer abc def"}, "", true},
		{"comma", []string{"Bearer abc,def"}, "", true},
		{"not ASCII", []string{"Bearer é"}, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			key, err := bearer.Key(c.headers)
			if key != c.key || (err != nil) != c.refused {
				t.Errorf("key %q, error %v", key, err)
			}
			if err == nil {
				return
			}
			fault, ok := errors.AsType[*transports.Fault](err)
			if !ok || fault.Reason != pb.Reason_REASON_UNAUTHENTICATED || fault.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED {
				t.Errorf("fault is %+v", fault)
			}
			if strings.Contains(err.Error(), "abc") || strings.Contains(err.Error(), "YTpi") {
				t.Errorf("the error repeats a secret: %v", err)
			}
		})
	}
}

func TestHeaderIsTheInverseOfKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringMatching(`[A-Za-z0-9._~+/-]{1,64}={0,2}`).Draw(t, "key")
		got, err := bearer.Key([]string{bearer.Header(key)})
		if err != nil || got != key {
			t.Fatalf("got %q, %v", got, err)
		}
	})
}

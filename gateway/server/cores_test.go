package server

import "testing"

func TestCores(t *testing.T) {
	for list, want := range map[string]int{"0\n": 1, "0-3\n": 4, "0-3,6,8-9": 7, "": 0, "x": 0, "3-1": 0} {
		if got := listed(list); got != want {
			t.Errorf("%q has %d cores, want %d", list, got, want)
		}
	}
	for text, want := range map[string]int{"max 100000": 8, "400000 100000": 4, "150000 100000": 1, "50000 100000": 0, "1600000 100000": 8, "": 8, "1 0": 8} {
		if got := quota(text, 8); got != want {
			t.Errorf("%q of 8 cores leaves %d, want %d", text, got, want)
		}
	}
	if cores() < 1 {
		t.Errorf("this test runs on %d cores", cores())
	}
}

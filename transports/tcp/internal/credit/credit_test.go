package credit

import "testing"

type silent struct{}

func (silent) Granted()       {}
func (silent) Reclaim(uint32) {}
func (silent) Violated(error) {}

func TestFloorIsRenewedWithTheAnswer(t *testing.T) {
	p := New(Config{})
	start := uint32(0xfffffff0)
	s := p.Open("a", start, silent{})
	g := s.Granted()
	if g != start+DefaultFloor {
		t.Fatal(g)
	}
	for i := range 10 {
		if err := s.Request(int64(i), 0, 18, 0, 0); err != nil {
			t.Fatal(err)
		}
		granted, standing := s.Answer(int64(i), 18)
		if granted != g+18 || standing != 0 {
			t.Fatal(granted, standing)
		}
		g = granted
		s.Completed(int64(i), 18, 0)
	}
	if err := s.Request(0, 0, 22, 0, 0); err == nil {
		t.Fatal("past the grant")
	} else {
		t.Log(err)
	}
	if s := p.Stats(); s.Granted != DefaultFloor || s.Used != 0 || s.Renewals != 10 {
		t.Fatalf("%+v", s)
	}
}

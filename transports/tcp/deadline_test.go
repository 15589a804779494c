package tcp

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"tailgate/transports"
)

type contextKey struct{}

// TestRequestContext goes through what a context promises, for two requests of one connection after another.
func TestRequestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, stop := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "kept"))
		defer stop()
		var reused requestContext
		for _, allowed := range []time.Duration{time.Second, time.Minute} {
			started := time.Now()
			ctx := reused.begin(parent, transports.Now()+int64(allowed))
			for range 2 {
				if deadline, ok := ctx.Deadline(); !ok || !deadline.Equal(started.Add(allowed)) {
					t.Errorf("the deadline is %v after the start (%v), want %v", deadline.Sub(started), ok, allowed)
				}
				time.Sleep(allowed / 4)
			}
			if err := ctx.Err(); err != nil || ctx.Value(contextKey{}) != "kept" {
				t.Errorf("half way: %v, value %v", err, ctx.Value(contextKey{}))
			}
			derived, cancel := context.WithTimeout(ctx, time.Hour)
			select {
			case <-derived.Done():
				t.Error("it ends before its deadline")
			default:
			}
			<-ctx.Done()
			if passed := time.Since(started); passed != allowed || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("it ended after %v with %v, %v were allowed", passed, ctx.Err(), allowed)
			}
			<-derived.Done()
			if ctx.Value(contextKey{}) != "kept" {
				t.Error("with a timer it forgets its parent's values")
			}
			cancel()
			reused.end()
		}

		// Nobody asked for Done: Err still says what is true, and Done agrees.
		ctx := reused.begin(parent, transports.Now()+int64(time.Second))
		time.Sleep(time.Second)
		if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the deadline: %v", err)
		}
		<-ctx.Done()
		reused.end()

		ctx = reused.begin(parent, transports.Now()+int64(time.Hour))
		stop()
		if err := ctx.Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of its parent: %v", err)
		}
		<-ctx.Done()
		reused.end()
	})
}

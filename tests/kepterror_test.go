package tests_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// largeError is an error with the body of an answer.
type largeError struct{ body []byte }

func (*largeError) Error() string { return "bad answer" }

// A projection may wait for months. Callers can get the errors of the 16 that failed last.
func TestProjectionThatWaitsKeepsNoErrorOfItsHandler(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.New(t)
		var mu sync.Mutex
		made := make(map[string][]weak.Pointer[largeError])
		kept := func(why string) (n int) {
			runtime.GC()
			mu.Lock()
			defer mu.Unlock()
			for _, err := range made[why] {
				if err.Value() != nil {
					n++
				}
			}
			return n
		}
		const stopped, waiting = 20, 3
		var projections []millrace.Projection
		add := func(n int, why string, p millrace.Projection) {
			for i := range n {
				p.Name = fmt.Sprint(why, i)
				p.Handler = b.Store.Batch(func(context.Context, kit.Tx, []event.Envelope) error {
					err := &largeError{make([]byte, 1<<20)}
					mu.Lock()
					defer mu.Unlock()
					made[why] = append(made[why], weak.Make(err))
					return fmt.Errorf("call the service: %w", err)
				})
				projections = append(projections, p)
			}
		}
		later := projection.RetryPolicy{Base: time.Hour, Cap: time.Hour, MaxAttempts: 5}
		add(stopped, "stopped", millrace.Projection{OnFailure: projection.ActionStop, Retry: kit.Soon(1)})
		add(waiting, "retry", millrace.Projection{Retry: later})
		add(waiting, "outage", millrace.Projection{Breaker: projection.BreakerPolicy{
			IsOutage: func(error) bool { return true }, Failures: 1, OpenFor: time.Hour}})
		rt := b.Running(millrace.Config{}, projections...)
		b.Append("s", 1)
		for _, p := range projections {
			state := admin.StateWaiting
			if p.OnFailure == projection.ActionStop {
				state = admin.StateFailed
			}
			if s := b.Is(rt, p.Name, state); s.Reason == "" {
				t.Errorf("%s does not say why it is %s", p.Name, state)
			}
		}
		for why, most := range map[string]int{"stopped": 16, "retry": 0, "outage": 0} {
			b.Eventually("the errors are gone: "+why, func() bool { return kept(why) <= most })
		}
	})
}

package tests_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// delivered returns how many deliveries of n events were repeats. Each event must have arrived, with one token.
func delivered(t *testing.T, arrivals []kit.Arrival, n int) (repeats int) {
	t.Helper()
	tokens, positions := make(map[int64]string), make(map[string]int64)
	for _, a := range arrivals {
		if token, again := tokens[a.Position]; again && token != a.Token {
			t.Errorf("event %d arrived with the tokens %s and %s", a.Position, token, a.Token)
		}
		if at, used := positions[a.Token]; used && at != a.Position {
			t.Errorf("the events %d and %d arrived with the same token", at, a.Position)
		}
		tokens[a.Position], positions[a.Token] = a.Token, a.Position
	}
	if len(tokens) != n {
		t.Errorf("%d of %d events arrived", len(tokens), n)
	}
	return len(arrivals) - len(tokens)
}

// A re-split repeats at most the event that each previous partition was delivering, and none if the projection is
// paused.
func TestResplitsRepeatOnlyDeliveriesInProgress(t *testing.T) {
	for name, paused := range map[string]bool{"running": false, "paused": true} {
		t.Run(name, func(t *testing.T) {
			kit.Run(t, func(t *testing.T, b *kit.Bundle) {
				receiver := &kit.Receiver{}
				sends := func(ctx context.Context, e millrace.Delivered) error {
					receiver.Take(e.Position, e.Token)
					kit.Pass(ctx, 2*time.Millisecond) // the receiver is slow
					return nil
				}
				config := kit.Quick
				config.MaxDeliveries = 40
				p := millrace.Projection{Name: "p", Handler: millrace.DeliverEach(sends)}
				var nodes []*millrace.Runtime
				for range 2 {
					nodes = append(nodes, b.Another(config, p))
					b.Start(nodes[len(nodes)-1])
				}
				b.Reaches(nodes[0], "p", 0)
				stop := b.Flow()
				most, before := 0, 1
				for _, n := range []int{4, 16, 3, 9, 1, 2} {
					if paused {
						b.Pause(nodes[0], "p")
					}
					b.Must(nodes[1].Repartition(b.Ctx, idOfP, n))
					if paused {
						b.Resume(nodes[0], "p")
					}
					most, before = most+before, n
					kit.Pass(b.Ctx, 50*time.Millisecond)
				}
				last := stop()
				b.Reaches(nodes[0], "p", last)
				if paused {
					most = 0
				}
				if repeats := delivered(t, receiver.All(), int(last)); repeats > most {
					t.Errorf("%d deliveries were repeats, want at most %d", repeats, most)
				}
			})
		})
	}
}

// A projection that stops at an event stops only in the partition of that event's stream, and the attempts are kept.
func TestFailureGoesToThePartitionOfItsEvent(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		bad := b.Append("bad", 1).Positions[0]
		var attempts atomic.Int64
		var mended atomic.Bool
		poison := func(position int64) bool { return position == bad && !mended.Load() }
		p := millrace.Projection{Name: "p", OnFailure: projection.ActionStop, Retry: kit.Soon(2),
			Handler: b.Store.Batch(kit.FailsAt("p", poison, func(context.Context, kit.Tx, int, int64) error {
				attempts.Add(1)
				return kit.ErrOnPurpose
			}))}
		rt := b.Running(millrace.Config{}, p)
		b.Is(rt, "p", admin.StateFailed)
		for i := range 32 {
			b.Append(fmt.Sprint("s", i), 2)
		}
		counted := attempts.Load()
		for _, n := range []int{5, 2, 8} {
			b.Must(rt.Repartition(b.Ctx, idOfP, n))
			b.Eventually("one partition is failed, and the others are live", func() bool {
				states := make(map[admin.State]int)
				for _, s := range b.StatusOf(rt).Projections {
					states[s.State]++
				}
				return states[admin.StateFailed] == 1 && states[admin.StateLive] == n-1
			})
		}
		if n := attempts.Load(); n != counted {
			t.Errorf("the event was tried %d times before it stopped, %d times after", counted, n-counted)
		}
		mended.Store(true)
		b.Resume(rt, "p")
		b.Reaches(rt, "p", b.Head())
		applies(b, "p")
	})
}

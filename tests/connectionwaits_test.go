package tests_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/tests/kit"
)

// While the program holds all connections, an append waits for one of them, and another one gives up.
func TestObserverSeesWaitsForConnections(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var o observed
		b.Running(millrace.Config{Observer: o.observer()}, b.Recorders("p")...)
		hold := func() {
			release := make(chan struct{})
			var group sync.WaitGroup
			for range b.Store.Engine().Connections() + 1 {
				group.Go(func() {
					err := b.Store.InTx(b.Ctx, func(ctx context.Context, _ kit.Tx) error {
						<-release
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
			ctx, cancel := context.WithTimeout(b.Ctx, 50*time.Millisecond)
			defer cancel()
			if _, err := b.Store.Append(ctx, "s", event.Any, event.Untyped("e", nil)); err != nil &&
				!errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			close(release)
			group.Wait()
		}
		var all observe.ConnectionWaits
		b.Eventually("waits are reported", func() bool {
			hold()
			all = observe.ConnectionWaits{}
			for _, w := range seen(&o, func(observe.ConnectionWaits) bool { return true }) {
				if w.Count < 0 || w.GivenUp < 0 || w.Duration < 0 || w.Count+w.GivenUp == 0 ||
					w.Count == 0 && w.Duration > 0 {
					t.Errorf("%+v", w)
				}
				all.Count, all.GivenUp, all.Duration = all.Count+w.Count, all.GivenUp+w.GivenUp, all.Duration+w.Duration
			}
			return all.Count > 0 && all.GivenUp > 0
		})
		if all.Duration <= 0 {
			t.Errorf("%+v", all)
		}
	})
}

package tests_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

var idOfP = millrace.ProjectionID{Name: "p"}

// applies waits until a projection has applied as many events as there are, and checks what it applied.
func applies(b *kit.Bundle, name string) {
	b.T.Helper()
	events, err := kit.AllEvents(b.Ctx, b.Store)
	b.Must(err)
	var applied []kit.Applied
	b.Eventually(fmt.Sprintf("%s applies %d events", name, len(events)), func() bool {
		applied, err = b.Store.Applied(b.Ctx, name)
		return err == nil && len(applied) >= len(events)
	})
	if err := exact(applied, len(events)); err != nil {
		b.T.Errorf("%s: %v", name, err)
	}
}

// exact returns an error unless n events were applied, each once, and those of each stream in order. Streams whose
// names begin with e are in no order: their events are parked alone.
func exact(applied []kit.Applied, n int) error {
	seen, last := make(map[int64]bool), make(map[string]int64)
	for _, a := range applied {
		switch {
		case seen[a.Position]:
			return fmt.Errorf("%+v was applied twice", a)
		case a.Version <= last[a.Stream] && a.Stream[0] != 'e':
			return fmt.Errorf("%+v was applied after version %d", a, last[a.Stream])
		}
		seen[a.Position], last[a.Stream] = true, a.Version
	}
	if len(applied) != n {
		return fmt.Errorf("%d events were applied, want %d", len(applied), n)
	}
	return nil
}

// noWarnings fails the test if something worse than a change of a state was logged.
func noWarnings(t *testing.T, logs *observer.ObservedLogs) {
	t.Helper()
	for _, entry := range logs.All() {
		if entry.Level >= zap.WarnLevel {
			t.Errorf("logged %s: %s %v", entry.Level, entry.Message, entry.ContextMap())
		}
	}
}

func TestResplitsUnderLoadLoseAndRepeatNothing(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		logger, logs := kit.Logs()
		var nodes []*millrace.Runtime
		for range 3 {
			node := b.Another(millrace.Config{Logger: logger}, b.Recorders("p", "q")...)
			b.Start(node)
			nodes = append(nodes, node)
		}
		b.Share(nodes[0], b.Kind.Sharing(3))
		stop := b.Flow()
		for range 12 {
			n := 1 + rand.IntN(16)
			t.Logf("%d partitions", n)
			b.Must(nodes[rand.IntN(3)].Repartition(b.Ctx, idOfP, n))
			kit.Pass(b.Ctx, rand.N(200*time.Millisecond))
		}
		stop()
		applies(b, "p")
		applies(b, "q")
		noWarnings(t, logs)
	})
}

// The nodes run new partitions at once, and not only after their next search for free leases. The log has the times.
func TestNewPartitionsRunAtOnce(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var mu sync.Mutex
		began := make(map[string]time.Time) // by stream, when the first of its events after a re-split was handled
		handler := b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range events {
				if _, handled := began[e.Stream]; !handled {
					began[e.Stream] = time.Now()
				}
			}
			return tx.Record(ctx, "p", events...)
		})
		var nodes []*millrace.Runtime
		for range 3 {
			node := b.Another(millrace.Config{Store: tuning.Settings{Reconcile: time.Minute}},
				millrace.Projection{Name: "p", Handler: handler})
			b.Start(node)
			nodes = append(nodes, node)
		}
		b.Reaches(nodes[0], "p", 0)
		var calls, first, all []time.Duration
		for i := range 4 {
			called := time.Now()
			b.Must(nodes[i%3].Repartition(b.Ctx, idOfP, []int{16, 4}[i%2]))
			done := time.Now()
			mu.Lock()
			clear(began)
			mu.Unlock()
			for s := range 32 {
				b.Append(fmt.Sprint("s", s), 1)
			}
			b.Reaches(nodes[0], "p", b.Head())
			mu.Lock()
			var earliest, latest time.Time
			for _, at := range began {
				if earliest.IsZero() || at.Before(earliest) {
					earliest = at
				}
				if at.After(latest) {
					latest = at
				}
			}
			mu.Unlock()
			if latest.Sub(done) > 30*time.Second {
				t.Fatalf("a partition began after %v", latest.Sub(done))
			}
			calls, first, all = append(calls, done.Sub(called)), append(first, earliest.Sub(done)),
				append(all, latest.Sub(done))
		}
		for what, times := range map[string][]time.Duration{"the call": calls, "until the first batch": first,
			"until a batch for each of 32 streams": all} {
			slices.Sort(times)
			t.Logf("%s: median %v, longest %v", what, times[len(times)/2].Round(time.Millisecond),
				times[len(times)-1].Round(time.Millisecond))
		}
		applies(b, "p")
	})
}

// splitting is how a victim dies that changes the number of partitions again and again.
const splitting = "while it changes the number of partitions"

func splitForEver(b *kit.Bundle) {
	rt := b.Runtime(millrace.Config{}, b.Recorders("p")...)
	for n := 1; ; n = n%16 + 1 {
		b.Must(rt.Repartition(b.Ctx, idOfP, n))
	}
}

// A process that is killed while it changes the number of partitions leaves the old ones or the new ones.
func TestResplitsSurviveTheEndOfTheirProcess(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var nodes []*millrace.Runtime
		for range 2 {
			node := b.Another(kit.Quick, b.Recorders("p")...)
			b.Start(node)
			nodes = append(nodes, node)
		}
		b.Reaches(nodes[0], "p", 0)
		partitions := func() int { return len(b.StatusOf(nodes[0]).Projections) }
		stop := b.Flow()
		for range 6 {
			victim := b.VictimOf(splitting)
			b.Must(victim.Start())
			before := partitions()
			b.Eventually("the process changes the number of partitions", func() bool { return partitions() != before })
			kit.Pass(b.Ctx, rand.N(20*time.Millisecond))
			b.Must(victim.Process.Kill())
			_ = victim.Wait()
			// One transaction of the victim may still commit.
			b.Eventually("all partitions are there", func() bool {
				all := b.StatusOf(nodes[0]).Projections
				return len(all) > 0 && len(all) == max(1, all[len(all)-1].ID.Partition)
			})
		}
		stop()
		applies(b, "p")
	})
}

func TestResplitsAreRefusedByName(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Idle(b.Recorders("p")...)
		for _, test := range []struct {
			id   millrace.ProjectionID
			n    int
			want error
			says string
		}{
			{idOfP, 0, nil, "from 1 to 1024: 0"},
			{idOfP, -1, nil, "from 1 to 1024: -1"},
			{idOfP, 1025, nil, "from 1 to 1024: 1025"},
			{
				millrace.ProjectionID{Name: "p", Partition: 1}, 2, nil,
				"default/p/1: ProjectionID.Partition must not be set",
			},
			{millrace.ProjectionID{Name: "unknown"}, 2, projection.ErrUnknownProjection, "default/unknown"},
			{millrace.ProjectionID{Tenant: "nobody", Name: "p"}, 2, tenancy.ErrUnknown, "nobody/p"},
		} {
			err := rt.Repartition(b.Ctx, test.id, test.n)
			if err == nil || test.want != nil && !errors.Is(err, test.want) ||
				!strings.Contains(err.Error(), test.says) {
				t.Errorf("%+v into %d: %v", test.id, test.n, err)
			}
		}
		b.Must(rt.Repartition(b.Ctx, idOfP, 1024))
		b.Must(rt.Repartition(b.Ctx, idOfP, 1))
	})
}

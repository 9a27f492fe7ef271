package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// seenEvents are the events that handlers got, by position.
type seenEvents struct {
	mu     sync.Mutex
	events map[int64]event.Envelope
}

func (s *seenEvents) add(events []event.Envelope) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		if before, again := s.events[e.Position]; again && !reflect.DeepEqual(before, e) {
			return fmt.Errorf("%+v, and before that %+v", e, before)
		}
		s.events[e.Position] = e
	}
	return nil
}

// Each node appends, and so do writers elsewhere, whose transactions roll back or stay open. Some events are read,
// others are taken from the appends.
func TestEventsOfTwoNodesAndForeignWritersAreAppliedAsTheyAreRead(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	seen := &seenEvents{events: make(map[int64]event.Envelope)}
	names := []string{"p", "q", "r", "s"}
	var projections []millrace.Projection
	for _, name := range names {
		record := kit.Record(name)
		projections = append(projections, millrace.Projection{Name: name,
			Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
				return errors.Join(seen.add(events), record(ctx, tx, events))
			})})
	}
	var own, read atomic.Int64
	observer := observe.Observer{EventsRead: func(r observe.Read) {
		if r.Own {
			own.Add(int64(r.Events))
		} else {
			read.Add(int64(r.Events))
		}
	}}
	stores, foreign := []*pgstore.Store{b.store, b.elsewhere(pgstore.Options{})}, b.elsewhere(pgstore.Options{})
	var rt *millrace.Runtime
	for _, store := range stores {
		rt = b.Runtime(millrace.Config{Store: kit.PgStore{Store: store}, Observer: observer}, projections...)
		b.Start(rt)
	}
	b.Share(rt, 2)
	var writers sync.WaitGroup
	for i, store := range stores {
		writers.Go(func() {
			for n := range 150 {
				body := fmt.Sprintf(`{"b": %d.10, "a": 1e3, "b": [1E-2, "\u00e4"]}`, n)
				events := []event.Event{
					{
						Type: "own", Body: []byte(body), Headers: map[string]string{"n": fmt.Sprint(n), "a": "\u00e4"},
						CausationID: "c", CorrelationID: fmt.Sprint(i),
					},
				}
				if _, err := store.Append(b.Ctx, fmt.Sprint("own", i, n%5), event.Any, events...); err != nil {
					t.Error(err)
				}
				kit.Pass(b.Ctx, time.Duration(rand.IntN(6))*time.Millisecond)
			}
		})
	}
	writers.Go(func() {
		for n := range 60 {
			err := foreign.InTx(b.Ctx, func(ctx context.Context, tx pgx.Tx) error {
				_, err := foreign.AppendTx(ctx, tx, fmt.Sprint("foreign", n%3), event.Any, event.Event{Type: "foreign"})
				kit.Pass(ctx, time.Duration(rand.IntN(10))*time.Millisecond)
				if err == nil && n%4 == 0 {
					err = kit.ErrOnPurpose
				}
				return err
			})
			if err != nil && !errors.Is(err, kit.ErrOnPurpose) {
				t.Error(err)
			}
			kit.Pass(b.Ctx, time.Duration(rand.IntN(20))*time.Millisecond)
		}
	})
	writers.Wait()
	b.Eventually("an event is taken from an append", func() bool {
		b.Append("slow", 1)
		kit.Pass(b.Ctx, 50*time.Millisecond)
		return own.Load() > 0
	})
	b.Applied(rt, b.Append("last", 1).Positions[0], names...)
	for _, e := range b.All(b.Store) {
		if got := seen.events[e.Position]; !reflect.DeepEqual(got, e) {
			t.Errorf("a handler got\n%+v\nand a read returns\n%+v", got, e)
		}
	}
	t.Logf("%d events were taken from appends, %d were read", own.Load(), read.Load())
	if read.Load() == 0 {
		t.Error("no event was read: the test shows nothing")
	}
}

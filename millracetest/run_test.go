package millracetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"

	"database/sql"
)

func TestProjectionThatStopsIsTested(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		k := on.given(t)
		p := on.totals()
		p.OnFailure, p.Middleware = projection.ActionStop, []millrace.Middleware{k.FailAt(2, Always)}
		err := k.WhenFails(p)
		if !errors.Is(err, projection.ErrFailed) || !strings.Contains(err.Error(), ErrInjected.Error()) {
			t.Errorf("%v", err)
		}
		k.Then(all, "Ada | 30 | NULL")
		k.When(on.totals()) // repaired
		k.Then(all, "Ada | 43 | NULL", "Bob | 9 | NULL")

		for want, p := range map[string]millrace.Projection{"no projection has failed": on.totals(),
			"must be set": {Name: "q"}} {
			if text := failures(t, func(t testing.TB) { _ = on.given(t).WhenFails(p) }); !strings.Contains(text, want) {
				t.Errorf("%q does not contain %q", text, want)
			}
		}
	})
}

func TestDeliveryIsTested(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		for name, test := range map[string]struct {
			fault func(*Kit) millrace.Middleware
			sends int
		}{"none": {func(k *Kit) millrace.Middleware { return k.Slow(0) }, 1}, "lost commit": {(*Kit).LostCommit, 2},
			"lost lease": {(*Kit).LostLease, 2}} {
			k := on.given(t)
			var mu sync.Mutex
			tokens := make(map[string]int)
			p := millrace.Projection{Name: "mails", Reset: k.hook("select 1"),
				Middleware: []millrace.Middleware{test.fault(k)},
				Handler: millrace.DeliverEach(func(_ context.Context, d millrace.Delivered) error {
					mu.Lock()
					defer mu.Unlock()
					tokens[d.Token]++
					return nil
				})}
			k.When(p)
			if len(tokens) != 6 {
				t.Errorf("%s: %d tokens, want one for each event", name, len(tokens))
			}
			most := 0
			for _, sends := range tokens {
				most = max(most, sends)
			}
			if most != test.sends {
				t.Errorf("%s: a token was sent %d times, want %d", name, most, test.sends)
			}
			k.Rebuild(p)
			if len(tokens) != 6 {
				t.Errorf("%s: %d tokens after the events were delivered again, want the same 6", name, len(tokens))
			}
		}
	})
}

type userKey struct{}

func TestMiddlewareOfTheProgramIsTested(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		k := on.given(t)
		withUser := func(next millrace.HandleFunc) millrace.HandleFunc {
			return func(ctx context.Context, events []event.Envelope) error {
				return next(context.WithValue(ctx, userKey{}, "ada"), events)
			}
		}
		k.Configure(millrace.Config{Middleware: []millrace.Middleware{withUser}})
		k.When(millrace.Projection{Name: "totals",
			Handler: on.each(func(ctx context.Context, exec execFunc, _ event.Envelope) error {
				return exec("update totals set note = cast($1 as text)", fmt.Sprint(ctx.Value(userKey{})))
			})})
		k.Then(all, "Ada | 43 | ada", "Bob | 9 | ada")
	})
}

func TestPartitionsAreTested(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		k := on.kit(t)
		for i := range 8 {
			k.Given(fmt.Sprint("order-", i), event.New(paid{"Ada", 1}), event.New(paid{"Bob", 2}))
		}
		var calls atomic.Int64
		p := on.totals()
		p.Partitions, p.AnyOrder, p.MaxFailureShare = 3, true, projection.NoLimit
		p.Middleware = []millrace.Middleware{k.FailAt(3, Always), k.FailAt(14, Always), k.LostCommit(),
			func(next millrace.HandleFunc) millrace.HandleFunc {
				return func(ctx context.Context, events []event.Envelope) error {
					calls.Add(1)
					return next(ctx, events)
				}
			}}
		status := k.When(p)
		k.Then(all, "Ada | 7 | NULL", "Bob | 14 | NULL")
		k.Parked("totals", 3, 14)
		if all := status.Projection(millrace.ProjectionID{Name: "totals"}); len(status.Projections) != 3 ||
			all.Parked != 2 || all.Position != 16 {
			t.Errorf("%+v", status)
		}
		if calls.Load() != 28 { // 14 events, each twice
			t.Errorf("the handler was called %d times, want 28", calls.Load())
		}
	})
}

// follows returns a projection that appends an event for each event of a type, up to a limit.
func follows(k *Kit, most int) millrace.Projection {
	p := millrace.Projection{Name: "follows", Types: []string{"step"}}
	next := func(e event.Envelope) []event.Event {
		if int(e.Version) >= most {
			return nil
		}
		return []event.Event{event.Untyped("step", nil)}
	}
	switch s := k.store.(type) {
	case *pgstore.Store:
		p.Handler = pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
			for _, n := range next(e) {
				if _, err := s.AppendTx(ctx, tx, e.Stream, event.Any, n); err != nil {
					return err
				}
			}
			return nil
		})
	case *sqlitestore.Store:
		p.Handler = sqlitestore.Each(func(ctx context.Context, tx *sql.Tx, e event.Envelope) error {
			for _, n := range next(e) {
				if _, err := s.AppendTx(ctx, tx, e.Stream, event.Any, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return p
}

func TestWhenHandlesEventsThatHandlersAppend(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		k := on.kit(t)
		k.Given("s", event.Untyped("step", nil))
		status := k.When(follows(k, 10))
		if p := status.Projection(millrace.ProjectionID{Name: "follows"}); p.Position != p.Head || p.Behind != 0 {
			t.Errorf("%+v", p)
		}
		if next := k.Given("s", event.Untyped("other", nil)); next.Version != 11 {
			t.Errorf("the next event has version %d, want 11", next.Version)
		}
	})
}

func TestWhenEndsIfEventsAreAppendedForEver(t *testing.T) {
	text := failures(t, func(t testing.TB) {
		k := SQLite(t)
		k.rounds = 3
		k.Given("s", event.Untyped("step", nil))
		k.When(follows(k, 1<<30))
	})
	if !strings.Contains(text, "after 3 runs of the projections there are still new events") {
		t.Errorf("%q", text)
	}
}

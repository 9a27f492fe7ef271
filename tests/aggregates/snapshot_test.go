package aggregates_test

import (
	"context"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// counting returns a category of accounts whose folds count their calls.
func counting(calls *int) *aggregate.Category[account] {
	return aggregate.New("account",
		aggregate.On(func(a account, e event.Of[deposited]) account {
			*calls++
			return a.booked(e.Body.By, e.Body.Cents, e.Version)
		}),
		aggregate.On(func(a account, e event.Of[withdrawn]) account {
			*calls++
			return a.booked(e.Body.By, -e.Body.Cents, e.Version)
		}))
}

// load returns an aggregate, which must be what its stream folds to, and how many events were folded for it.
func load(b *kit.Bundle, c *aggregate.Category[account], calls *int) int {
	b.T.Helper()
	*calls = 0
	at, err := c.Load(b.Ctx, b.Store, "1")
	b.Must(err)
	n := *calls
	mustBe(b, at)
	return n
}

func TestLoadReadsTheSnapshotAndWhatFollows(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		var calls int
		saving := counting(&calls).Snapshot(3, 1)
		for i := range 10 {
			r, err := saving.Do(b.Ctx, b.Store, "1", deposit(int64(i+1)))
			b.Must(err)
			mustBe(b, r.Aggregate)
			if n, want := load(b, saving, &calls), (i+1)%3; n != want {
				t.Errorf("after %d events %d are folded, want %d", i+1, n, want)
			}
		}
		for name, other := range map[string]*aggregate.Category[account]{
			"another revision": counting(&calls).Snapshot(3, 2),
			"other types":      counting(&calls).Ignore("Closed").Snapshot(3, 1), "none": counting(&calls),
		} {
			if n := load(b, other, &calls); n != 10 {
				t.Errorf("%s: %d events are folded", name, n)
			}
		}
		// The snapshot of another revision is replaced when it is 3 events old, so that two releases do not take turns.
		revised := counting(&calls).Snapshot(3, 2)
		for i := range 2 {
			_, err := revised.Do(b.Ctx, b.Store, "1", deposit(1))
			b.Must(err)
			if n, want := load(b, saving, &calls), []int{2, 12}[i]; n != want {
				t.Errorf("%d events are folded, want %d", n, want)
			}
		}
		if n := load(b, revised, &calls); n != 0 {
			t.Errorf("%d events are folded", n)
		}
	})
}

func TestRunSavesSnapshots(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var calls int
		saving := counting(&calls).Snapshot(2, 1)
		for range 2 {
			b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
				_, err := aggregate.Run(ctx, b.Store.Within(tx), func(ctx context.Context, u *aggregate.Unit) error {
					for _, id := range []string{"1", "2"} {
						m, err := saving.Member(ctx, u, id)
						if err != nil {
							return err
						}
						if err := m.Append(event.New(deposited{Cents: 1})); err != nil {
							return err
						}
					}
					return nil
				})
				return err
			}))
		}
		if n := load(b, saving, &calls); n != 0 {
			t.Errorf("%d events are folded", n)
		}
	})
}

func TestErasureRemovesSnapshots(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var calls int
		saving := counting(&calls).Snapshot(2, 1)
		for range 4 {
			_, err := saving.Do(b.Ctx, b.Store, "1", deposit(1))
			b.Must(err)
		}
		// A command that has loaded the state before the erasure appends, and would save a snapshot, after it.
		erased := false
		_, err := saving.Do(b.Ctx, b.Store, "1", func(account) ([]event.Event, error) {
			if !erased {
				erased = true
				_, err := b.Store.RedactEvents(b.Ctx, []int64{1, 2}, "test")
				b.Must(err)
			}
			return []event.Event{event.New(deposited{Cents: 1}), event.New(deposited{Cents: 1})}, nil
		})
		b.Must(err)
		if n := load(b, saving, &calls); n != 4 {
			t.Errorf("%d events are folded", n)
		}
		_, err = saving.Do(b.Ctx, b.Store, "1", deposit(1))
		b.Must(err)
		if n := load(b, saving, &calls); n != 0 {
			t.Errorf("%d events are folded", n)
		}
		_, err = b.Store.EraseStream(b.Ctx, "account-1", "test")
		b.Must(err)
		if n := load(b, saving, &calls); n != 0 {
			t.Errorf("%d events are folded", n)
		}
		if at, err := saving.Load(b.Ctx, b.Store, "1"); err != nil || at.State.Cents != 0 || at.Version != 7 {
			t.Errorf("%+v, %v", at, err)
		}
	})
}

// A tenant was restored to an earlier state, and got other events at the same positions and versions.
func TestSnapshotOfEventsThatAreGoneIsIgnored(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var calls int
		saving := counting(&calls).Snapshot(2, 1)
		for range 4 {
			_, err := saving.Do(b.Ctx, b.Store, "1", deposit(100))
			b.Must(err)
		}
		b.Must(b.Store.Truncate(b.Ctx, 2))
		if n := load(b, saving, &calls); n != 2 {
			t.Errorf("%d events are folded", n)
		}
		for range 2 {
			_, err := b.Store.Append(b.Ctx, "account-1", event.Any, event.New(deposited{Cents: 1}))
			b.Must(err)
		}
		if n := load(b, saving, &calls); n != 4 {
			t.Errorf("%d events are folded", n)
		}
	})
}

// A snapshot does not decide what can be appended.
func TestStateThatIsTooLargeForASnapshot(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		saving := accounts.Snapshot(1, 1)
		large := func(account) ([]event.Event, error) {
			return []event.Event{event.New(deposited{Cents: 1, By: strings.Repeat("x", 9<<20)})}, nil
		}
		for _, decide := range []func(account) ([]event.Event, error){large, deposit(1)} {
			_, err := saving.Do(b.Ctx, b.Store, "1", decide)
			b.Must(err)
		}
		at, err := saving.Load(b.Ctx, b.Store, "1")
		b.Must(err)
		if at.Snapshot != 0 || at.Version != 2 {
			t.Errorf("version %d by a snapshot of version %d", at.Version, at.Snapshot)
		}
	})
}

// latin keeps a byte as JSON that is not UTF-8.
type latin struct{ char byte }

func (l latin) MarshalJSON() ([]byte, error) { return []byte{'"', l.char, '"'}, nil }

func (l *latin) UnmarshalJSON(text []byte) error {
	l.char = text[1]
	return nil
}

// PostgreSQL refuses such a text.
func TestStateWhoseJSONIsNotUTF8IsNotSaved(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		saving := aggregate.New("latin", aggregate.On(func(latin, event.Of[deposited]) latin { return latin{0xe9} })).
			Snapshot(1, 1)
		for range 2 {
			_, err := saving.Do(b.Ctx, b.Store, "1", func(latin) ([]event.Event, error) {
				return []event.Event{event.New(deposited{Cents: 1})}, nil
			})
			b.Must(err)
		}
		at, err := saving.Load(b.Ctx, b.Store, "1")
		b.Must(err)
		if at.Snapshot != 0 || at.Version != 2 || at.State.char != 0xe9 {
			t.Errorf("version %d by a snapshot of version %d: %v", at.Version, at.Snapshot, at.State)
		}
	})
}

// A projection saves snapshots of streams that were long before the category had any, once for each of them, and again
// after a change of the revision and a reset.
func TestSnapshotterSavesThoseOfOldStreams(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		appended := func(id string, n int) {
			t.Helper()
			list := make([]event.Event, n)
			for i := range list {
				list[i] = event.New(deposited{Cents: int64(i + 1), By: "d"})
			}
			b.MustAppend(b.Store, "account-"+id, event.Any, list...)
		}
		appended("1", 25)
		appended("2", 9)
		b.MustAppend(b.Store, "other-1", event.Any, event.New(deposited{Cents: 1}))
		var calls int
		saving := counting(&calls).Snapshot(10, 1)
		rt := b.Idle(millrace.Projection{Name: "snapshots",
			Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
				return saving.SaveSnapshots(ctx, b.Store.Within(tx), events)
			})})
		loads := func(id string, folds int) {
			t.Helper()
			calls = 0
			at, err := saving.Load(b.Ctx, b.Store, id)
			b.Must(err)
			if calls != folds {
				t.Errorf("account %s: %d events are folded, want %d", id, calls, folds)
			}
			mustBe(b, at)
		}
		b.RunUntilIdle(rt)
		loads("1", 0)
		loads("2", 9)
		appended("1", 4)
		appended("2", 1)
		b.RunUntilIdle(rt)
		loads("1", 4)
		loads("2", 0)
		saving = counting(&calls).Snapshot(10, 2)
		loads("1", 29)
		_, err := rt.Reset(b.Ctx, millrace.ProjectionID{Tenant: projection.DefaultTenant, Name: "snapshots"}, 0,
			admin.ResetOptions{})
		b.Must(err)
		b.RunUntilIdle(rt)
		loads("1", 0)
	})
}

package pages_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/millracetest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// The types and functions up to asOf are those of docs/shapes.md.

type ItemAdded struct {
	Amount string `json:"amount"` // "12.50"
}

func (ItemAdded) EventType() string { return "ItemAdded" }

// ItemAdded2 has cents in place of the amount.
type ItemAdded2 struct {
	Cents int64  `json:"cents"`
	Note  string `json:"note,omitzero"` // came later, and is empty before
}

func (ItemAdded2) EventType() string { return "ItemAdded.2" }

func itemAdded(_ context.Context, q pgstore.Queue, e event.Of[ItemAdded]) error {
	euros, err := strconv.ParseFloat(e.Body.Amount, 64)
	if err != nil {
		return err
	}
	return addCents(q, e.Stream, int64(math.Round(euros*100)))
}

func itemAdded2(_ context.Context, q pgstore.Queue, e event.Of[ItemAdded2]) error {
	return addCents(q, e.Stream, e.Body.Cents)
}

func addCents(q pgstore.Queue, order string, cents int64) error {
	q.Exec(`insert into totals values ($1, $2) on conflict (stream) do update set cents = totals.cents + excluded.cents`, order, cents)
	return nil
}

func totals() millrace.Projection {
	return millrace.Projection{
		Name: "totals",
		Handler: pgstore.Route(
			pgstore.OnQueued(itemAdded, event.Strict),
			pgstore.OnQueued(itemAdded2, event.Strict),
		),
	}
}

func stopAtOtherShapes(_ context.Context, f projection.Failure) projection.Action {
	if errors.Is(f.Err, event.ErrUnknownField) || errors.Is(f.Err, event.ErrMissingField) {
		return projection.ActionStop
	}
	return projection.ActionParkStream
}

// renamedItem is what a careless release makes of ItemAdded: its member got another name.
type renamedItem struct {
	Cents int64 `json:"cents"`
}

func (renamedItem) EventType() string { return "ItemAdded" }

// shopStore is a store, and the projections of docs/shapes.md for it, by their releases.
type shopStore struct {
	*millracetest.Kit
	postgres bool
	after    millrace.Projection
}

// release is the projection of a release that has one handler.
func release[T event.Typed](s shopStore, f func(context.Context, pgstore.Queue, event.Of[T]) error, o ...event.DecodeOption) millrace.Projection {
	p := s.after
	p.Handler = sqlitestore.OnQueued(f, o...)
	if s.postgres {
		p.Handler = pgstore.OnQueued(f, o...)
	}
	return p
}

func careless(_ context.Context, q pgstore.Queue, e event.Of[renamedItem]) error {
	return addCents(q, e.Stream, e.Body.Cents)
}

// onBothStores runs a test with a store of each kind.
func onBothStores(t *testing.T, test func(t *testing.T, s shopStore)) {
	const table = "create table totals (stream text primary key, cents bigint)"
	onPostgres(t, func(t *testing.T, store *pgstore.Store) {
		after := totals()
		after.Reset = pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "delete from totals")
			return err
		})
		test(t, shopStore{millracetest.New(t, store), true, after})
	}, pgstore.TenantSQL(table))
	t.Run("sqlitestore", func(t *testing.T) {
		after := millrace.Projection{Name: "totals",
			Handler: sqlitestore.Route(sqlitestore.OnQueued(itemAdded, event.Strict), sqlitestore.OnQueued(itemAdded2, event.Strict)),
			Reset: sqlitestore.Hook(func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "delete from totals")
				return err
			})}
		test(t, shopStore{millracetest.SQLite(t, table), false, after})
	})
}

const shownTotals = "select stream, cents from totals order by 1"

// The release that knows both types comes before the first event of the new one.
func TestReadersKnowANewTypeBeforeItIsAppended(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, s shopStore) {
		s.Given("order-1", event.New(ItemAdded{"12.50"}))
		s.When(release(s, itemAdded, event.Strict))
		s.Then(shownTotals, "order-1 | 1250")
		s.When(s.after) // readers first
		s.Given("order-1", event.New(ItemAdded2{Cents: 100}), event.New(ItemAdded{"1.00"}), event.New(ItemAdded2{Cents: 7, Note: "a gift"}))
		s.When(s.after)
		s.Then(shownTotals, "order-1 | 1457")
	})
}

// The other way round, the old release passes the new events without an error.
func TestReaderThatDoesNotKnowANewTypePassesItsEvents(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, s shopStore) {
		s.Given("order-1", event.New(ItemAdded{"12.50"}), event.New(ItemAdded2{Cents: 100}))
		s.When(release(s, itemAdded, event.Strict))
		s.When(s.after)
		s.Then(shownTotals, "order-1 | 1250")
		s.Parked("totals")
	})
}

// A member that was renamed in the Go type is zero, or parks its event if the handler is strict. The next release replays it.
func TestRenamedMemberIsZeroOrParked(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, s shopStore) {
		s.Given("order-1", event.New(ItemAdded{"12.50"}))
		s.When(release(s, careless))
		s.Then(shownTotals, "order-1 | 0")
	})
	onBothStores(t, func(t *testing.T, s shopStore) {
		s.Given("order-1", event.New(ItemAdded{"12.50"}))
		s.When(release(s, careless, event.Strict))
		s.Then(shownTotals)
		letters := s.Parked("totals", 1)
		want := `decode event 1 (ItemAdded of stream "order-1") as pages_test.renamedItem at amount: the type has no such field`
		if len(letters) != 1 || !strings.Contains(letters[0].Error, want) {
			t.Errorf("parked %+v", letters)
		}
		s.Replay(s.after)
		s.Then(shownTotals, "order-1 | 1250")
	})
}

// With the FailureHandler of the page, the projection stops at the event, and the next release continues there.
func TestProjectionStopsAtOtherShapes(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, s shopStore) {
		s.Given("order-1", event.New(ItemAdded{"12.50"}))
		strict := release(s, careless, event.Strict)
		strict.FailureHandler = stopAtOtherShapes
		if err := s.WhenFails(strict); !errors.Is(err, projection.ErrFailed) || !strings.Contains(fmt.Sprint(err), "at amount") {
			t.Error(err)
		}
		s.Then(shownTotals)
	})
	other := projection.Failure{Err: errors.New("another")}
	if action := stopAtOtherShapes(t.Context(), other); action != projection.ActionParkStream {
		t.Errorf("another error: %v", action)
	}
}

// withoutNote is what a careless release makes of ItemAdded2: it has no note any more. withQuantity has a member that must be there.
type (
	withoutNote struct {
		Cents int64 `json:"cents"`
	}
	withQuantity struct {
		Cents    int64  `json:"cents"`
		Note     string `json:"note,omitzero"`
		Quantity int64  `json:"quantity"`
	}
)

func (withoutNote) EventType() string  { return "ItemAdded.2" }
func (withQuantity) EventType() string { return "ItemAdded.2" }

// An event is parked if it has a member that was removed since, or lacks a member that is required now. A field that may be missing
// accepts both shapes.
func TestRemovedAndNewMembersParkOtherEvents(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, s shopStore) {
		s.Given("order-1", event.New(ItemAdded2{Cents: 1, Note: "a gift"}))
		s.Given("order-2", event.New(ItemAdded2{Cents: 2}))
		removed := release(s, func(_ context.Context, q pgstore.Queue, e event.Of[withoutNote]) error {
			return addCents(q, e.Stream, e.Body.Cents)
		}, event.Strict)
		added := release(s, func(_ context.Context, q pgstore.Queue, e event.Of[withQuantity]) error {
			return addCents(q, e.Stream, e.Body.Cents*e.Body.Quantity)
		}, event.Strict)
		removed.Name, added.Name = "removed", "added"
		s.When(removed, added)
		s.Then(shownTotals, "order-2 | 2")
		for name, want := range map[string]string{"removed": "at note: the type has no such field", "added": "at quantity: the body has no such member"} {
			positions := []int64{1}
			if name == "added" {
				positions = []int64{1, 2}
			}
			for _, letter := range s.Parked(name, positions...) {
				if !strings.Contains(letter.Error, want) {
					t.Errorf("%s: %s, want %s", name, letter.Error, want)
				}
			}
		}
		s.When(s.after)
		s.Then(shownTotals, "order-1 | 1", "order-2 | 4")
	})
}

// A rebuild hands the events of all shapes to the handlers of today. A handler that is gone is missed, and a handler that is strict parks
// what it does not know.
func TestRebuildHandlesTheEventsOfAllShapes(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, s shopStore) {
		s.Given("order-1", event.New(ItemAdded{"12.50"}), event.New(ItemAdded2{Cents: 100}))
		s.When(s.after)
		s.Rebuild(s.after)
		s.Then(shownTotals, "order-1 | 1350")
		s.Rebuild(release(s, itemAdded2, event.Strict))
		s.Then(shownTotals, "order-1 | 100")
		s.Rebuild(release(s, careless, event.Strict))
		s.Then(shownTotals)
		s.Parked("totals", 1)
		s.Rebuild(s.after)
		s.Then(shownTotals, "order-1 | 1350")
	})
}

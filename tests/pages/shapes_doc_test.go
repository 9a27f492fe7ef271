package pages_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/millracetest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// The types and functions up to stopAtOtherShapes are those of docs/shapes.md.

// ItemAdded has cents in place of the amount.
type ItemAdded struct {
	Cents int64  `json:"cents"`
	Note  string `json:"note,omitzero"` // came later, and is empty before
}

func (ItemAdded) EventType() string { return "ItemAdded.v2" }

// ItemAddedV1 is in the store for ever.
type ItemAddedV1 struct {
	Amount string `json:"amount"` // "12.50"
}

func (ItemAddedV1) EventType() string { return "ItemAdded" }

func eventTypes() (*eventtype.Types, error) {
	return eventtype.New(
		eventtype.Upcast(inCents, event.Strict),
		eventtype.Named("OrderCancelled"),
		eventtype.Renamed("order_cancelled", "OrderCancelled"),
	)
}

func inCents(old ItemAddedV1) (ItemAdded, error) {
	euros, err := strconv.ParseFloat(old.Amount, 64)
	return ItemAdded{Cents: int64(math.Round(euros * 100))}, err
}

func itemAdded(_ context.Context, q pgstore.Queue, e event.Of[ItemAdded]) error {
	q.Exec(`insert into totals values ($1, $2) on conflict (stream) do update set cents = totals.cents + excluded.cents`, e.Stream, e.Body.Cents)
	return nil
}

func totals() millrace.Projection {
	return millrace.Projection{
		Name:    "totals",
		Handler: pgstore.OnQueued(itemAdded, event.Strict),
	}
}

func stopAtOtherShapes(_ context.Context, f projection.Failure) projection.Action {
	if errors.Is(f.Err, event.ErrUnknownField) || errors.Is(f.Err, event.ErrMissingField) {
		return projection.ActionStop
	}
	return projection.ActionParkStream
}

// itemAddedV1 is the handler of the release before.
func itemAddedV1(_ context.Context, q pgstore.Queue, e event.Of[ItemAddedV1]) error {
	item, err := inCents(e.Body)
	if err != nil {
		return err
	}
	return addCents(q, e.Stream, item.Cents)
}

func addCents(q pgstore.Queue, order string, cents int64) error {
	return itemAdded(context.Background(), q, event.Of[ItemAdded]{Envelope: event.Envelope{Stream: order},
		Body: ItemAdded{Cents: cents}})
}

// renamedItem is what a careless release makes of ItemAddedV1: its member got another name.
type renamedItem struct {
	Cents int64 `json:"cents"`
}

func (renamedItem) EventType() string { return "ItemAdded" }

// shopStore is a store of a release without a registry. next is the same store of a release with one, whose projection
// is after.
type shopStore struct {
	*millracetest.Kit
	next     *millracetest.Kit
	postgres bool
	after    millrace.Projection
}

// release is the projection of a release that has one handler.
func release[T event.Typed](s shopStore, f func(context.Context, pgstore.Queue, event.Of[T]) error,
	o ...event.DecodeOption) millrace.Projection {
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
	types, err := eventTypes()
	must(t, err)
	onPostgres(t, func(t *testing.T, store *pgstore.Store) {
		next, err := pgstore.OpenPool(t.Context(), store.Pool(),
			pgstore.Options{TenantSetup: []pgstore.TenantStep{pgstore.TenantSQL(table)}, Types: types})
		must(t, err)
		t.Cleanup(next.Close)
		after := totals()
		after.Reset = pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "delete from totals")
			return err
		})
		test(t, shopStore{millracetest.New(t, store), millracetest.New(t, next), true, after})
	}, pgstore.TenantSQL(table))
	t.Run("sqlitestore", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "events.db")
		var kits [2]*millracetest.Kit
		for i, types := range []*eventtype.Types{nil, types} {
			store, err := sqlitestore.Open(t.Context(), path,
				sqlitestore.Options{Synchronous: sqlitestore.SynchronousNormal, Types: types})
			must(t, err)
			t.Cleanup(store.Close)
			kits[i] = millracetest.New(t, store)
		}
		kits[0].Exec(table)
		after := millrace.Projection{Name: "totals", Handler: sqlitestore.OnQueued(itemAdded, event.Strict),
			Reset: sqlitestore.Hook(func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "delete from totals")
				return err
			})}
		test(t, shopStore{kits[0], kits[1], false, after})
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const shownTotals = "select stream, cents from totals order by 1"

// The page has three releases: release 1 knows the old type, release 2 reads both types, and release 3 appends the new
// type. Nodes of two releases take turns, as in a rollout.
func TestReadersKnowANewTypeBeforeItIsAppended(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, s shopStore) {
		before := release(s, itemAddedV1, event.Strict)
		s.Given("order-1", event.New(ItemAddedV1{"12.50"}))
		s.When(before)
		s.Then(shownTotals, "order-1 | 1250")
		s.next.Given("order-1", event.New(ItemAddedV1{"1.00"})) // readers first
		s.next.When(s.after)
		s.Given("order-1", event.New(ItemAddedV1{"2.00"}))
		s.When(before)
		s.Then(shownTotals, "order-1 | 1550")
		s.next.Given("order-1", event.New(ItemAdded{Cents: 100}), event.New(ItemAddedV1{"1.00"}),
			event.New(ItemAdded{Cents: 7, Note: "a gift"}))
		s.next.When(s.after)
		s.Then(shownTotals, "order-1 | 1757")
	})
}

// An append of a type that the registry lacks is refused, and so is a handler for an old type.
func TestRegistryRefusesOtherTypes(t *testing.T) {
	t.Parallel()
	types, err := eventTypes()
	must(t, err)
	store, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "events.db"),
		sqlitestore.Options{Types: types})
	must(t, err)
	defer store.Close()
	must(t, store.Migrate(t.Context()))
	_, err = store.Append(t.Context(), "order-1", event.Any, event.Untyped("ItemAded.v2", nil))
	if !errors.Is(err, eventtype.ErrNotRegistered) || !strings.Contains(err.Error(), `"ItemAded.v2"`) {
		t.Error(err)
	}
	rt, err := millrace.New(millrace.Config{Store: store})
	must(t, err)
	err = rt.Register(millrace.Projection{Name: "totals", Handler: sqlitestore.OnQueued(itemAddedV1)})
	if !errors.Is(err, eventtype.ErrOutdated) || !strings.Contains(err.Error(), `"ItemAdded.v2"`) {
		t.Error(err)
	}
}

// An upcaster that fails parks its event at once. A release with a better one replays it.
func TestUpcasterThatFailsParksItsEvent(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, s shopStore) {
		s.Given("order-1", event.New(ItemAddedV1{"a lot"}))
		s.Given("order-2", event.New(ItemAddedV1{"2.00"}))
		s.next.When(s.after)
		s.Then(shownTotals, "order-2 | 200")
		letters := s.next.Parked("totals", 1)
		want := `decode event 1 (ItemAdded of stream "order-1") as ItemAdded.v2: the upcaster failed at "ItemAdded": strconv.ParseFloat`
		if len(letters) != 1 || letters[0].Attempts != 1 || !strings.Contains(letters[0].Error, want) {
			t.Errorf("parked %+v", letters)
		}
	})
}

// The other way round, the old release passes the new events without an error.
func TestReaderThatDoesNotKnowANewTypePassesItsEvents(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, s shopStore) {
		s.Given("order-1", event.New(ItemAddedV1{"12.50"}), event.New(ItemAdded{Cents: 100}))
		s.When(release(s, itemAddedV1, event.Strict))
		s.next.When(s.after)
		s.Then(shownTotals, "order-1 | 1250")
		s.Parked("totals")
	})
}

// A member that was renamed in the Go type is zero, or parks its event if the handler is strict. The next release
// replays it.
func TestRenamedMemberIsZeroOrParked(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, s shopStore) {
		s.Given("order-1", event.New(ItemAddedV1{"12.50"}))
		s.When(release(s, careless))
		s.Then(shownTotals, "order-1 | 0")
	})
	onBothStores(t, func(t *testing.T, s shopStore) {
		s.Given("order-1", event.New(ItemAddedV1{"12.50"}))
		s.When(release(s, careless, event.Strict))
		s.Then(shownTotals)
		letters := s.Parked("totals", 1)
		want := `decode event 1 (ItemAdded of stream "order-1") as pages_test.renamedItem at amount: the type has no such field`
		if len(letters) != 1 || !strings.Contains(letters[0].Error, want) {
			t.Errorf("parked %+v", letters)
		}
		s.next.Replay(s.after)
		s.Then(shownTotals, "order-1 | 1250")
	})
}

// With the FailureHandler of the page, the projection stops at the event, and the next release continues there.
func TestProjectionStopsAtOtherShapes(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, s shopStore) {
		s.Given("order-1", event.New(ItemAddedV1{"12.50"}))
		strict := release(s, careless, event.Strict)
		strict.FailureHandler = stopAtOtherShapes
		if err := s.WhenFails(strict); !errors.Is(err, projection.ErrFailed) ||
			!strings.Contains(fmt.Sprint(err), "at amount") {
			t.Error(err)
		}
		s.Then(shownTotals)
	})
	other := projection.Failure{Err: errors.New("another")}
	if action := stopAtOtherShapes(t.Context(), other); action != projection.ActionParkStream {
		t.Errorf("another error: %v", action)
	}
}

// withoutNote is what a careless release makes of ItemAdded: it has no note any more. withQuantity has a member that
// must be there.
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

func (withoutNote) EventType() string  { return "ItemAdded.v2" }
func (withQuantity) EventType() string { return "ItemAdded.v2" }

// An event is parked if it has a member that was removed since, or lacks a member that is required now. A field that
// may be missing accepts both shapes.
func TestRemovedAndNewMembersParkOtherEvents(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, s shopStore) {
		s.Given("order-1", event.New(ItemAdded{Cents: 1, Note: "a gift"}))
		s.Given("order-2", event.New(ItemAdded{Cents: 2}))
		removed := release(s, func(_ context.Context, q pgstore.Queue, e event.Of[withoutNote]) error {
			return addCents(q, e.Stream, e.Body.Cents)
		}, event.Strict)
		added := release(s, func(_ context.Context, q pgstore.Queue, e event.Of[withQuantity]) error {
			return addCents(q, e.Stream, e.Body.Cents*e.Body.Quantity)
		}, event.Strict)
		removed.Name, added.Name = "removed", "added"
		s.When(removed, added)
		s.Then(shownTotals, "order-2 | 2")
		for name, want := range map[string]string{"removed": "at note: the type has no such field",
			"added": "at quantity: the body has no such member"} {
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
		s.next.When(s.after)
		s.Then(shownTotals, "order-1 | 1", "order-2 | 4")
	})
}

// A rebuild hands the events of all shapes to the handlers of today. A handler that is gone is missed, and a handler
// that is strict parks what it does not know.
func TestRebuildHandlesTheEventsOfAllShapes(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, s shopStore) {
		s.Given("order-1", event.New(ItemAddedV1{"12.50"}), event.New(ItemAdded{Cents: 100}))
		s.next.When(s.after)
		s.next.Rebuild(s.after)
		s.Then(shownTotals, "order-1 | 1350")
		s.Rebuild(release(s, itemAdded, event.Strict))
		s.Then(shownTotals, "order-1 | 100")
		s.Rebuild(release(s, careless, event.Strict))
		s.Then(shownTotals)
		s.Parked("totals", 1)
		s.next.Rebuild(s.after)
		s.Then(shownTotals, "order-1 | 1350")
	})
}

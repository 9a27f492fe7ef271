package moves_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
	"github.com/millrace-go/millrace/tenancy"
)

// handled records what handlers of both stores apply, by projection.
type handled struct {
	mu        sync.Mutex
	positions map[string][]int64
}

// node returns a runtime on a store with projections of these names.
func (h *handled) node(t testing.TB, on *place, names ...string) *millrace.Runtime {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.positions == nil {
		h.positions = make(map[string][]int64)
	}
	record := func(ctx context.Context, e event.Envelope) error {
		id, _ := millrace.ProjectionFrom(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.positions[id.Name] = append(h.positions[id.Name], e.Position)
		return nil
	}
	var handler millrace.Handler = pgstore.Each(func(ctx context.Context, _ pgx.Tx, e event.Envelope) error {
		return record(ctx, e)
	})
	if on.file != nil {
		handler = sqlitestore.Each(func(ctx context.Context, _ *sql.Tx, e event.Envelope) error {
			return record(ctx, e)
		})
	}
	rt := must(millrace.New(millrace.Config{Store: on}))(t)
	for _, name := range names {
		noError(t, rt.Register(millrace.Projection{Name: name, Handler: handler, Tenants: []string{"acme"}}))
	}
	return rt
}

// onBoth are the projections of runBoth.
var onBoth = []string{"plain", "resplit"}

// runBoth runs a node on each of two stores.
func (h *handled) runBoth(t testing.TB, from, to *place) map[*place]*millrace.Runtime {
	t.Helper()
	nodes := make(map[*place]*millrace.Runtime)
	for _, on := range []*place{from, to} {
		nodes[on] = h.node(t, on, onBoth...)
		run(t, nodes[on])
	}
	return nodes
}

// mustHandle waits until the projections of runBoth have come to a position, by a node of the tenant's store. Each must
// have handled each event once, in order.
func (h *handled) mustHandle(t testing.TB, rt *millrace.Runtime, last int64) {
	t.Helper()
	var want []int64
	for position := range last {
		want = append(want, position+1)
	}
	for _, name := range onBoth {
		noError(t, rt.WaitFor(testContext(t), millrace.ProjectionID{Tenant: "acme", Name: name}, last))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range onBoth {
		if !slices.Equal(h.positions[name], want) {
			t.Errorf("%s handled %v, want 1 to %d", name, h.positions[name], last)
		}
	}
}

// run runs a node until the end of the test.
func run(t testing.TB, rt *millrace.Runtime) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Nodes run on both stores and appends continue, first in the source and then in the target. Each event is handled
// once.
func TestNodesOfBothStoresLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		from.create(t, "acme")
		var h handled
		nodes := h.runBoth(t, from, to)
		appended, refused := 0, make(chan struct{})
		enough := make(chan struct{})
		go func() {
			defer close(refused)
			for {
				_, err := from.tenant(t, "acme").Append(ctx, fmt.Sprint("s", appended%7), event.Any, happened)
				if err != nil {
					if !errors.Is(err, tenancy.ErrArchived) {
						t.Error(err)
					}
					return
				}
				appended++
				if appended == 30 {
					close(enough)
				}
			}
		}()
		<-enough
		report := moveIt(t, from, to, "acme", keep())
		<-refused
		if report.Rows["events"] != int64(appended) {
			t.Errorf("%d of %d events were moved", report.Rows["events"], appended)
		}
		last := must(to.tenant(t, "acme").Append(ctx, "s0", event.Any, happened, happened))(t).Positions[1]
		h.mustHandle(t, nodes[to], last)
	})
}

// The last events were deleted, after a projection had handled them.
func TestPositionsVersionsAndKeysContinue(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		acme := from.create(t, "acme")
		first := must(acme.Append(ctx, "s", event.NoStream.WithKey("k"), happened, happened))(t)
		must(acme.Append(ctx, "s", event.Exact(2), happened, happened))(t)
		var h handled
		must(h.node(t, from, "plain").RunUntilIdle(ctx))(t)
		if from.file != nil {
			from.exec(t, `delete from millrace_events where position > 3`)
		} else {
			from.exec(t, `delete from {acme}.events where global_seq > 3`)
		}
		moveIt(t, from, to, "acme", keep())
		acme = to.tenant(t, "acme")
		must(h.node(t, to, "plain").RunUntilIdle(ctx))(t) // the tenant is not taken for a restored one
		again := must(acme.Append(ctx, "s", event.NoStream.WithKey("k"), happened, happened))(t)
		next := must(acme.Append(ctx, "s", event.Exact(4), happened))(t)
		if !slices.Equal(again.Positions, first.Positions) || next.Positions[0] != 5 {
			t.Errorf("repeated at %v, want %v; next at %v", again.Positions, first.Positions, next.Positions)
		}
		must(h.node(t, to, "plain").RunUntilIdle(ctx))(t)
		if got := h.positions["plain"]; !slices.Equal(got, []int64{1, 2, 3, 4, 5}) {
			t.Errorf("handled %v", got)
		}
	})
}

func TestRedactedEventsStayRedacted(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		acme := from.create(t, "acme")
		must(acme.Append(ctx, "person", event.NoStream, event.Untyped("Named", []byte(`{"name":"Ada"}`))))(t)
		erased := must(acme.EraseStream(ctx, "person", "request 17"))(t)
		moveIt(t, from, to, "acme", keep())
		for _, row := range to.contents(t, "acme")["events"] {
			if strings.Contains(row, "Ada") {
				t.Error(row)
			}
		}
		list := must(to.tenant(t, "acme").Erasures(ctx))(t)
		if len(list) != 1 || list[0].Reason != "request 17" || !list[0].EndedAt.Equal(erased.EndedAt) ||
			list[0].Events != 1 {
			t.Errorf("erasures %+v", list)
		}
		must(to.tenant(t, "acme").EraseStream(ctx, "person", "request 18"))(t)
	})
}

// writeTotals is a hook of the target that writes a read model, and then fails if err is set.
func writeTotals(to *place, calls *int, err *error) millrace.Hook {
	if to.file != nil {
		return sqlitestore.Hook(func(ctx context.Context, tx *sql.Tx) error {
			*calls++
			_, failed := tx.ExecContext(ctx, "create table totals (n integer); insert into totals values (7)")
			return errors.Join(failed, *err)
		})
	}
	return pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
		*calls++
		_, failed := tx.Exec(ctx, "create table totals (n integer); insert into totals values (7)",
			pgx.QueryExecModeSimpleProtocol)
		return errors.Join(failed, *err)
	})
}

func TestReadModelsMoveWithTheTenantOrNotAtAll(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		must(from.create(t, "acme").Append(ctx, "s", event.NoStream, happened, happened))(t)
		var h handled
		must(h.node(t, from, "plain", "resplit").RunUntilIdle(ctx))(t)
		opts, calls, broken := keep(), 0, errors.New("on purpose")
		opts.Projections["resplit"] = admin.MoveRebuild
		opts.ReadModels = writeTotals(to, &calls, &broken)
		if _, err := admin.MoveTenant(ctx, from, to, "acme", opts); !errors.Is(err, broken) {
			t.Fatalf("error %v", err)
		}
		to.mustLack(t, "acme")
		from.mustBe(t, "acme", tenancy.Active)
		must(from.tenant(t, "acme").Append(ctx, "s", event.Exact(2), happened))(t)

		broken = nil
		moveIt(t, from, to, "acme", opts)
		if report := moveIt(t, from, to, "acme", opts); !report.Earlier || calls != 2 {
			t.Errorf("%d calls, report %+v", calls, report)
		}
		from.mustBe(t, "acme", tenancy.Archived)
		// The way back does not take what is left in the source for the tenant.
		if _, err := admin.MoveTenant(ctx, to, from, "acme", keep()); !errors.Is(err, tenancy.ErrNotEmpty) {
			t.Errorf("back: %v", err)
		}
		to.mustBe(t, "acme", tenancy.Active)
		query := "select cast(sum(n) as text) from totals where ?1 <> ''"
		if to.pg != nil {
			query = "select sum(n)::text from {acme}.totals where $1 <> ''"
		}
		if got := to.column(t, query, "acme"); got[0] != "7" {
			t.Errorf("totals %q", got)
		}
		must(h.node(t, to, "plain", "resplit").RunUntilIdle(ctx))(t)
		if !slices.Equal(h.positions["plain"], []int64{1, 2, 3}) ||
			!slices.Equal(h.positions["resplit"], []int64{1, 2, 1, 2, 3}) {
			t.Errorf("handled %v", h.positions)
		}
	})
}

func TestRebuiltProjectionsForgetTheirFailures(t *testing.T) {
	t.Parallel()
	for _, to := range []*place{newDatabase(t), newFile(t)} {
		source := newFile(t)
		fill(t, source, "acme", 5, 100)
		source.archive(t, "acme")
		want := source.contents(t, "acme")
		opts := keep()
		opts.Projections["plain"], opts.Projections["split"] = admin.MoveRebuild, admin.MoveRebuild
		moveIt(t, source, to, "acme", opts)
		got := to.contents(t, "acme")
		for _, table := range []string{"dead letters", "commands", "parked streams"} {
			for _, row := range got[table] {
				if strings.Contains(row, ` "plain" `) || strings.Contains(row, ` "split" `) {
					t.Errorf("%s: %s", table, row)
				}
			}
			if len(got[table]) == 0 || len(got[table]) >= len(want[table]) {
				t.Errorf("%s: %d of %d rows", table, len(got[table]), len(want[table]))
			}
		}
		for _, row := range got["projections"] {
			if strings.Contains(row, `"plain"`) && strings.Contains(row, "broken") {
				t.Error(row)
			}
		}
	}
}

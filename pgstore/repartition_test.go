package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

var projectionP = projection.ID{Name: "p"}

func resplitInto(t testing.TB, store *Store, n int) {
	t.Helper()
	noError(t, store.plane().Repartition(testContext(t), projectionP, n))
}

func TestResplitReplacesAllRowsAndKeepsTheToken(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	noError(t, o.apply(write, engine.ApplyOptions{}))
	token := one[string](t, o.store, "select token::text from millrace.projections")
	for _, n := range []int{3, 16, 1, 2} {
		resplitInto(t, o.store, n)
		next := int32(0)
		rows := rowsOf(t, o.store, "default", "p")
		for i, row := range rows {
			if row.Partition != int32(partition.Numbers(n)[i]) || int(row.Partitions) != n || row.SlotFrom != next ||
				!row.Leased {
				t.Errorf("row %d of %d is %+v", i, n, row)
			}
			next = row.SlotTo
		}
		if len(rows) != n || next != partition.Slots {
			t.Errorf("%d partitions have the rows %+v", n, rows)
		}
		if n := one[int](t, o.store,
			"select count(*) from millrace.leases where checkpoint <> 3 or owner is not null"); n != 0 {
			t.Errorf("%d leases have another checkpoint, or an owner", n)
		}
		if n := one[int](t, o.store, "select count(*) from millrace.projections where token::text <> $1",
			token); n != 0 {
			t.Errorf("%d rows have another token", n)
		}
	}
	if err := o.store.plane().Repartition(testContext(t), projection.ID{Name: "q"}, 2); !errors.Is(err,
		projection.ErrUnknownProjection) {
		t.Error(err)
	}
	if err := o.store.plane().Repartition(testContext(t), projection.ID{Tenant: "x", Name: "q"}, 2); !errors.Is(err,
		tenancy.ErrUnknown) {
		t.Error(err)
	}
}

func TestResplitIntoTheSameNumberKeepsTheOwner(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	resplitInto(t, o.store, 1)
	noError(t, o.apply(write, engine.ApplyOptions{}))
}

func TestPreviousOwnerCannotCommitAfterAResplit(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 0)
	mustAppend(t, o.store.tenant, "s", event.Any, someEvents(3)...)
	resplitInto(t, o.store, 2)
	fault := wantClass(t, o.apply(write, engine.ApplyOptions{}), faults.LeaseLost)
	if !errors.Is(fault, projection.ErrLeaseLost) || o.written() != 0 {
		t.Errorf("%v; %d rows", fault, o.written())
	}
}

// inTest runs changes of tenants in a transaction of the test.
type inTest struct {
	port
	tx *transaction
}

func (c inTest) Change(_ context.Context, _ string, fn func(store.Tx, tenancy.State) error) error {
	return c.tx.run(func(tx store.Tx) error { return fn(tx, tenancy.Active) })
}

// Among many projections, a re-split reads the rows of its own, and no table from end to end.
func TestResplitReadsOnlyItsProjection(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	id := projection.ID{Tenant: "t1", Name: "p1"}
	const each = 50
	for _, table := range []string{"dead_letters", "parked_streams", "commands"} {
		values := map[string]string{
			"dead_letters": `(projection_id, position, stream_id, stream_version, type, error, stack, attempts, first_failed_at, last_failed_at)
				select p.id, n, 's' || n, 1, 'T', 'e', '', 1, now(), now()`,
			"parked_streams": "(projection_id, stream_id) select p.id, 's' || n",
			"commands":       "(projection_id, kind, max_events) select p.id, case n % 2 when 0 then 'replay' else 'discard' end, 0",
		}[table]
		// As many rows as for each of 399 other projections.
		mustExec(t, f.Store,
			fmt.Sprintf(`insert into millrace.%s %s from (select id from millrace.projections where tenant in ('t1', 't2', 't3', 't4')) p, generate_series(1, $1) n`, table, values), each)
		mustExec(t, f.Store, "analyze millrace."+table)
	}
	for _, table := range []string{"leases", "projections"} {
		mustExec(t, f.Store, "analyze millrace."+table)
	}
	read := readBy(t, f.Store, "select", func(tx pgx.Tx) error {
		return control.On(inTest{f.port(), f.on(testContext(t), tx)}).Repartition(testContext(t), id, 4)
	})
	for _, table := range controlTables {
		if r := read[table]; r.Scans != 0 || r.Rows > 100*each {
			t.Errorf("%s: %+v", table, r)
		}
	}
	t.Logf("%+v", read)
}

func TestResplitCountsTheDeathOfAnOwner(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	counts := func() []int32 {
		return one[[]int32](t, store, "select array_agg(crash_count) from millrace.leases")
	}
	claimed(t, store, aNode(), true, ensured(t, store, "p")...) // it is not registered, and so it is dead
	resplitInto(t, store, 2)
	if !slices.Equal(counts(), []int32{1, 1}) {
		t.Errorf("crashes %v after the owner died", counts())
	}
	node := aNode()
	present(t, store, node)
	claimed(t, store, node, true, one[[]int32](t, store, "select array_agg(id) from millrace.leases")...)
	resplitInto(t, store, 1)
	if !slices.Equal(counts(), []int32{1}) {
		t.Errorf("crashes %v although the owner is alive", counts())
	}
}

// An earlier re-split may have left a row of a replay that has only a parked stream to replay.
func TestReplayContinuesByItsFilterIfOnePartReplaysOnlyAStream(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ensured(t, store, "p")
	resplitInto(t, store, 2)
	mustExec(t, store, `with p as (select min(id) as one, max(id) as two from millrace.projections),
		root as (insert into millrace.commands (projection_id, kind, max_events, ended_at) select one, 'replay', 100, clock_timestamp() from p returning id)
		insert into millrace.commands (root, projection_id, kind, max_events, dead_letter_ids, current_stream)
		select root.id, x.* from p, root, lateral (values (one, 'replay', 100, '{}'::bigint[], 's'), (two, 'replay', 100, null, null)) x`)
	resplitInto(t, store, 1)
	if n := one[int](t, store,
		"select count(*) from millrace.commands where ended_at is null and dead_letter_ids is null and current_stream = 's'"); n != 1 {
		t.Errorf("%d rows replay the stream, and then by the filter", n)
	}
}

// Two rows of a replay may replay the same parked stream. One row has only that stream, the other found it by its
// filter.
func TestTwoRowsOfAReplayAtOneStreamContinueAsOne(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	row := ensured(t, store, "p")[0]
	mustExec(t, store,
		`with root as (insert into millrace.commands (projection_id, kind, max_events, current_stream) values ($1, 'replay', 100, 's') returning id),
		part as (insert into millrace.commands (root, projection_id, kind, max_events, dead_letter_ids, current_stream)
			select id, $1, 'replay', 100, '{}', 's' from root returning id)
		insert into millrace.parked_streams (projection_id, stream_id, last_command) select $1, 's', id from part`, row)
	for _, n := range []int{2, 1} {
		resplitInto(t, store, n)
		if rows := one[int](t, store,
			"select count(*) from millrace.commands where ended_at is null and current_stream = 's'"); rows != 1 {
			t.Errorf("%d rows replay the stream in %d partitions", rows, n)
		}
		if marked := one[bool](t, store,
			"select exists (select from millrace.parked_streams s join millrace.commands c on c.id = s.last_command where c.ended_at is null)"); !marked {
			t.Errorf("the stream is not that of an open row in %d partitions", n)
		}
	}
}

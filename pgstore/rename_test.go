package pgstore

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// A rename and the end of a projection read the rows of their tenants' projections, among those of many others.
func TestRenameReadsOnlyItsTenants(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	mustExec(t, f.Store,
		`insert into millrace.dead_letters (projection_id, position, stream_id, stream_version, type, state, open_replays, error, stack, attempts, first_failed_at, last_failed_at)
		select p.id, n, 's', 1, 'T', 'replaying', 1, 'e', '', 1, now(), now() from millrace.projections p, generate_series(1, 20) n where p.tenant in ('t1', 't2', 't3', 't4')`)
	mustExec(t, f.Store,
		`insert into millrace.parked_streams (projection_id, stream_id) select p.id, 's' || n from millrace.projections p, generate_series(1, 5) n
		where p.tenant in ('t1', 't2', 't3', 't4')`)
	mustExec(t, f.Store,
		`insert into millrace.commands (projection_id, kind, max_events) select p.id, 'replay', 1 from millrace.projections p, generate_series(1, 5) n
		where p.tenant in ('t1', 't2', 't3', 't4')`)
	fillOperations(t, f)
	for _, table := range append(slices.Clone(controlTables), "tenants") {
		mustExec(t, f.Store, "analyze millrace."+table)
	}
	row := one[int32](t, f.Store, "select id from millrace.projections where tenant = 't1' and name = 'p1'")
	rows := []int32{row}
	for doing, statements := range map[string]map[string][]any{
		"rename": {
			"names_of_tenants":    {[]string{"t1", "t2"}},
			"lock_projections":    {[]string{"t1", "t2"}, []string{"p1", "p2"}},
			"rename_projection":   {"t1", "p1", "q1"},
			"rename_operations":   {"t1", "p1", "q1"},
			"end_living_attempts": {rows},
			"end_living_replays":  {rows},
			"fence_renamed":       {rows, []int32{}},
			"restore_name":        {"t1", "was p1"},
			"retire_name":         {"t1", "p1", "renamed", "q1"},
		},
		"forget": {"lock_projections": {[]string{"t1"}, []string{"p1"}}},
	} {
		read := readBy(t, f.Store, "select", func(tx pgx.Tx) error {
			return f.on(testContext(t), tx).run(func(tx store.Tx) error {
				for statement, args := range statements {
					tx.Exec(statement, args...)
				}
				if doing == "forget" {
					control.DeleteProjections(tx, rows)
				}
				return nil
			})
		})
		for _, table := range controlTables {
			if r := read[table]; r.Scans != 0 && table != "operations" || r.Rows > 2000 { // there are no operations
				t.Errorf("%s: %s: %+v", doing, table, r)
			}
		}
	}
}

// If the owner is alive, its process has not crashed, and a rename clears the attempts. If the owner is dead, the
// rename counts a crash.
func TestRenameCountsTheDeathOfAnOwner(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t), testContext(t)
	state := func() string {
		return one[string](t, store,
			`select concat_ws(' ', name, crash_count, crash_attempts, owner is null, epoch, d.state, d.open_replays)
			from millrace.projections p join millrace.leases l using (id) join millrace.dead_letters d on d.projection_id = p.id`)
	}
	begin := func(name string) {
		mustExec(t, store, "update millrace.projections set crash_position = 5, crash_attempts = 2 where name = $1",
			name)
		mustExec(t, store, "update millrace.dead_letters set state = 'replaying', open_replays = 1")
	}
	to := func(from, name string) {
		noError(t, store.plane().Rename(ctx, engine.Rename{Tenant: projection.DefaultTenant, From: from, To: name}))
	}
	node := aNode()
	claimed(t, store, node, true, ensured(t, store, "p")...) // the node is not registered, and so it is dead
	mustExec(t, store,
		`insert into millrace.dead_letters (projection_id, position, stream_id, stream_version, type, error, stack, attempts, first_failed_at, last_failed_at)
		select id, 5, 's', 1, 'T', 'e', '', 1, now(), now() from millrace.projections`)
	begin("p")
	to("p", "q")
	if state() != "q 1 2 t 2 replaying 1" {
		t.Errorf("after the owner died: %s", state())
	}
	present(t, store, node)
	claimed(t, store, node, true, one[[]int32](t, store, "select array_agg(id) from millrace.leases")...)
	begin("q")
	to("q", "r")
	if state() != "r 1 1 t 4 parked 0" {
		t.Errorf("after the owner lived: %s", state())
	}
	to("r", "s")
	if state() != "s 1 1 t 5 parked 0" {
		t.Errorf("without an owner: %s", state())
	}
}

// Tenants that are being dropped or copied keep their names.
func TestTenantsThatAreBeingCopiedAreNotRenamed(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t), testContext(t)
	ensured(t, store, "p")
	mustExec(t, store, "update millrace.tenants set state = 'copying'")
	noError(t, store.plane().RenameUnused(ctx, []engine.Rename{{Tenant: projection.DefaultTenant, From: "p", To: "q"}}))
	for doing, err := range map[string]error{
		"rename": store.plane().Rename(ctx, engine.Rename{Tenant: projection.DefaultTenant, From: "p", To: "q"}),
		"forget": store.plane().Forget(ctx, projection.ID{Tenant: projection.DefaultTenant, Name: "p"}),
	} {
		if fault := classify(err); err == nil || fault.Class != faults.Configuration {
			t.Errorf("%s: %v", doing, err)
		}
	}
	if name := one[string](t, store, "select name from millrace.projections"); name != "p" {
		t.Errorf("it is %s", name)
	}
}

package pgstore

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/millrace-go/millrace/event"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

func TestEnsureMayBeCalledByManyAtOnce(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	tenants := []string{projection.DefaultTenant, newTenant(t, store, "b").Name()}
	noError(t, together(8, func(int) error {
		_, err := store.plane().Ensure(testContext(t), projectionsOf(tenants, "p", "q"))
		return err
	}))
	if rows := one[int](t, store,
		"select count(*) from millrace.projections p join millrace.leases l using (id)"); rows != 4 {
		t.Errorf("%d projections with leases, want 4", rows)
	}
}

// A name is retired after Ensure has looked for rows and before it inserts them.
func TestNameThatIsRetiredMeanwhileIsNotCreated(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t), testContext(t)
	done := make(chan error, 1)
	noError(t, store.durable(ctx, "retire", func(tx pgx.Tx) error {
		if _, err := store.tenant.lock(ctx, tx); err != nil {
			return err
		}
		go func() {
			_, err := store.plane().Ensure(ctx, projectionsOf([]string{projection.DefaultTenant}, "gone", "p"))
			done <- err
		}()
		waitBlocked(t, store, 1)
		_, err := tx.Exec(ctx,
			"insert into millrace.retired_projections (tenant, name, reason) values ('default', 'gone', 'forgotten')")
		return err
	}))
	noError(t, <-done)
	if rows := one[string](t, store, "select string_agg(name, ' ') from millrace.projections"); rows != "p" {
		t.Errorf("projections: %s", rows)
	}
}

// Nodes of two releases find no rows. Before the later release inserts them, the earlier release creates the rows, or
// another rename retires the earlier name.
func TestEarlierReleaseThatIsQuickerKeepsItsName(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t), testContext(t)
	mustExec(t, store,
		"insert into millrace.nodes (id, projections, tenants, session_key, expires_at) values (gen_random_uuid(), '{sums,means}', '{}', 0, 'infinity')")
	list := []engine.NewProjection{
		{Tenant: "default", Name: "sums", RenamedFrom: "totals"},
		{Tenant: "default", Name: "means", RenamedFrom: "averages"},
	}
	var left engine.LeftOut
	done := make(chan error, 1)
	noError(t, store.durable(ctx, "be quicker", func(tx pgx.Tx) error {
		if _, err := store.tenant.lock(ctx, tx); err != nil {
			return err
		}
		go func() {
			var err error
			left, err = store.plane().Ensure(ctx, list)
			done <- err
		}()
		waitBlocked(t, store, 1)
		_, err := tx.Exec(ctx,
			"insert into millrace.projections (tenant, name) values ('default', 'totals@3'), ('default', 'x'), ('default', 'totals@3x')")
		if err == nil {
			_, err = tx.Exec(ctx,
				"insert into millrace.retired_projections (tenant, name, reason, successor) values ('default', 'averages', 'renamed', 'x')")
		}
		return err
	}))
	noError(t, <-done)
	if rows := one[string](t, store,
		"select string_agg(name, ' ' order by name) from millrace.projections"); rows != "totals@3 totals@3x x" {
		t.Errorf("projections: %s", rows)
	}
	if len(left.Waiting) != 1 || left.Waiting[0].ID() != list[0].ID() || len(left.Retired) != 1 ||
		left.Retired[0].Name != "means" || left.Retired[0].Successor != "x" {
		t.Errorf("left out: %+v", left)
	}
}

// The statement returns its rows before it commits.
func TestAdvanceThatDoesNotCommitMovesNothing(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 5)
	mustExec(t, o.store,
		`create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$`)
	mustExec(t, o.store, `create constraint trigger refused after update on `+o.store.control.quoted+`.leases
		deferrable initially deferred for each row execute function refuse()`)
	moved, err := o.store.port().Advance(testContext(t), []engine.Advance{{Lease: o.lease, To: o.lease.Checkpoint + 1}})
	if err == nil || len(moved) != 0 {
		t.Errorf("moved %v, error %v", moved, err)
	}
	if at := o.checkpoint(); at != o.lease.Checkpoint {
		t.Errorf("checkpoint %d, want %d", at, o.lease.Checkpoint)
	}
}

func TestDeadLetterHasTheFailureAndNoPayload(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	for attempt := 1; attempt <= 2; attempt++ {
		failure := projection.Failure{
			Event: event.Envelope{Position: 1}, Attempt: attempt, Err: errors.New("bad\x00 byte \xff"),
		}
		must(o.store.plane().RecordFailure(testContext(t), o.lease, failure, time.Second))(t)
	}
	letter := projection.DeadLetter{
		Position: 1, Stream: "s", Version: 1, Type: "Counted", Error: "bad\x00 byte \xff", Stack: "a\x00b", Attempts: 2,
	}
	noError(t, o.store.plane().Park(testContext(t), o.lease, letter, false))
	letters, err := o.store.DeadLetters(o.lease.ID).List(testContext(t), projection.DeadLetterPage{})
	if err != nil || len(letters) != 1 {
		t.Fatal(letters, err)
	}
	l := letters[0]
	if l.Position != 1 || l.Stream != "s" || l.Attempts != 2 || !strings.HasPrefix(l.Error, "bad") ||
		!l.FirstFailedAt.Before(l.LastFailedAt) {
		t.Errorf("%+v", l)
	}
	if later, err := o.store.DeadLetters(o.lease.ID).List(testContext(t),
		projection.DeadLetterPage{After: 1}); err != nil || len(later) != 0 {
		t.Errorf("behind it: %v, %v", later, err)
	}
}

// leaseState is the part of a lease's state that no method of the port returns.
type leaseState struct {
	Owner      string
	Since      bool
	CrashCount int
	Epoch      int64
}

func stateOf(t *testing.T, store *Store, row int32) (s leaseState) {
	t.Helper()
	if err := store.pool.QueryRow(testContext(t),
		"select coalesce(owner::text, ''), free_since is not null, crash_count, epoch from millrace.leases where id = $1",
		row).Scan(&s.Owner, &s.Since, &s.CrashCount, &s.Epoch); err != nil {
		t.Fatal(err)
	}
	return s
}

// free counts the leases that a node finds free: first if expired heartbeats are ignored, then if they count as deaths.
func free(t *testing.T, store *Store, node engine.Node) (counts [2]int) {
	t.Helper()
	for i, trustHeartbeats := range []bool{false, true} {
		leases := must(store.port().Free(testContext(t), node, trustHeartbeats, true))(t)
		counts[i] = len(leases)
	}
	return counts
}

func TestClaimTakesRequestedLeasesThatAreFreeAndNotPaused(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	names := []string{"dead", "free", "held", "not asked for", "paused"}
	rows := ensured(t, store, names...)
	gone, alive, next := aNode(), aNode(), aNode()
	present(t, store, alive)
	claimed(t, store, gone, true, rows[0])
	claimed(t, store, alive, true, rows[2])
	mustExec(t, store, "update millrace.leases set crash_count = 2, checkpoint = 7 where id = any($1)", rows[:3])
	mustExec(t, store,
		"update millrace.projections set failed_reason = 'why', attempts = 3, failing_position = 8, last_error = 'bad' where id = $1", rows[1])
	noError(t, store.plane().SetDesiredState(testContext(t), projection.ID{Name: names[4]}, engine.WantPause))
	for unowned, want := range map[bool][]int32{true: rows[:2], false: rows[:1]} {
		var found []int32
		for _, l := range must(store.port().Free(testContext(t), engine.Node{Projections: names}, true, unowned))(t) {
			found = append(found, l.Row)
		}
		slices.Sort(found)
		found = slices.DeleteFunc(found, func(row int32) bool { return row == rows[3] })
		if !slices.Equal(found, want) {
			t.Errorf("free are %v, with those without an owner: %v; want %v", found, unowned, want)
		}
	}
	asked := slices.Concat(rows[:3], rows[4:], []int32{rows[4] + 1000})
	id := func(i int) projection.ID { return engine.FullID(projection.ID{Name: names[i]}) }
	want := []engine.Lease{
		{Row: rows[0], ID: id(0), Owner: next.ID, Epoch: 2, Checkpoint: 7, CrashCount: 3, Desired: engine.WantRun},
		{Row: rows[1], ID: id(1), Owner: next.ID, Epoch: 1, Checkpoint: 7, CrashCount: 2, Desired: engine.WantRun,
			Attempts: 3, FailingPosition: 8}, // the owner that failed is another
	}
	for i := range want {
		want[i].Partitions, want[i].Share = 1, partition.Share{Range: partition.All}
		want[i].Incarnation = one[engine.Incarnation](t, store, "select millrace.incarnation()")
		want[i].TenantRow = one[int32](t, store, "select id from millrace.tenants")
	}
	if leases := claimed(t, store, next, true, asked...); !reflect.DeepEqual(leases, want) {
		t.Errorf("claimed %+v, want %+v", leases, want)
	}
	for i, want := range []leaseState{{next.ID, false, 3, 2}, {next.ID, false, 2, 1}, {alive.ID, false, 2, 1},
		{"", true, 0, 0}, {"", true, 0, 0}} {
		if got := stateOf(t, store, rows[i]); got != want {
			t.Errorf("%s: %+v, want %+v", names[i], got, want)
		}
	}
}

func TestLeasesOfDeadNodesAreFree(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	watcher, node, next := present(t, store, aNode()), aNode(), aNode()
	s := present(t, store, node)
	row := ensured(t, store, "p")[0]
	held := claimed(t, store, node, true, row)[0]
	// found checks whether the lease is free: first if expired heartbeats are ignored, then if they count as deaths.
	found := func(when string, want [2]int) {
		t.Helper()
		if got := free(t, store, next); got != want {
			t.Errorf("%s: %v free, want %v", when, got, want)
		}
	}
	found("alive", [2]int{0, 0})
	expire(t, store, node)
	found("silent", [2]int{0, 1})
	if leases := claimed(t, store, next, false, row); len(leases) != 0 {
		t.Errorf("claimed %v without trust in heartbeats", leases)
	}
	noError(t, s.Heartbeat(testContext(t), &engine.NodeSummary{}))
	vanish(t, store, s)
	found("without its lock", [2]int{0, 0})
	if !markedDead(t, watcher, node) {
		t.Fatal("not marked dead")
	}
	found("marked dead", [2]int{1, 1})
	// It was cut off, and comes back.
	s = present(t, store, node)
	found("alive again", [2]int{0, 0})
	if owned, err := store.port().Owned(testContext(t), node); err != nil ||
		!reflect.DeepEqual(owned, []engine.Lease{held}) {
		t.Errorf("owned are %v, %v; want %v", owned, err, held)
	}
	noError(t, s.Deregister(testContext(t)))
	found("deregistered", [2]int{1, 1})
	vanish(t, store, s)
	s = present(t, store, node)
	vanish(t, store, s)
	if !markedDead(t, watcher, node) {
		t.Fatal("not marked dead")
	}
	if leases := claimed(t, store, next, false, row); len(leases) != 1 || leases[0].CrashCount != 1 {
		t.Errorf("claimed %v of a node that was marked dead", leases)
	}
	present(t, store, node)
	if owned, err := store.port().Owned(testContext(t), node); err != nil || len(owned) != 0 {
		t.Errorf("owned are %v, %v, after they were claimed", owned, err)
	}
	if _, err := reload(testContext(t), store, held); !errors.Is(err, projection.ErrLeaseLost) {
		t.Error(err)
	}
}

func TestReleaseNotifiesTheNodesIfItReleasedALease(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	node := aNode()
	listener := present(t, store, node)
	leases := claimed(t, store, node, true, ensured(t, store, "a", "b", "c")...)
	mustExec(t, store, "update millrace.leases set crash_count = 2")
	release := func(want []engine.Notice, leases ...engine.Lease) {
		t.Helper()
		var advances []engine.Advance
		for _, l := range leases {
			advances = append(advances, engine.Advance{Lease: l})
		}
		noError(t, store.port().Release(testContext(t), advances))
		if notified := heard(t, listener); !slices.Equal(notified, want) {
			t.Errorf("the release of %v was notified as %v", leases, notified)
		}
	}
	stale := leases[2]
	stale.Epoch--
	release(nil)
	release(nil, stale)
	release([]engine.Notice{{Control: true}}, leases[0], leases[1], stale)
	for i, want := range []leaseState{{"", true, 2, 1}, {"", true, 2, 1}, {node.ID, false, 2, 1}} {
		if got := stateOf(t, store, leases[i].Row); got != want {
			t.Errorf("after the release: %+v, want %+v", got, want)
		}
	}
	release(nil, leases[:2]...)
	claimed(t, store, node, true, leases[0].Row)
	if got := stateOf(t, store, leases[0].Row); got != (leaseState{node.ID, false, 2, 2}) {
		t.Errorf("claimed again: %+v", got)
	}
}

func TestFreeLeasesOfTenantsThatTheFilterExcludesAreNotListed(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	tenants := []string{
		projection.DefaultTenant, newTenant(t, store, "a1").Name(), newTenant(t, store, "a2").Name(),
		newTenant(t, store, "b").Name(),
	}
	must(store.plane().Ensure(testContext(t), projectionsOf(tenants, "p", "q")))(t)
	node := aNode()
	node.Projections, node.Tenants = []string{"p", "q"}, tenants[1:]
	node.Filters = map[string]engine.TenantFilter{"p": engine.NewTenantFilter([]string{"a?", "default"})}
	var found []projection.ID
	for _, l := range must(store.port().Free(testContext(t), node, true, true))(t) {
		found = append(found, l.ID)
	}
	slices.SortFunc(found, func(a, b projection.ID) int { return strings.Compare(a.Name+a.Tenant, b.Name+b.Tenant) })
	want := []projection.ID{
		{Tenant: "a1", Name: "p"}, {Tenant: "a2", Name: "p"}, {Tenant: "a1", Name: "q"}, {Tenant: "a2", Name: "q"},
		{Tenant: "b", Name: "q"},
	}
	if !slices.Equal(found, want) {
		t.Errorf("free are %v, want %v", found, want)
	}
}

// An operator may have deleted the row, or another node, when this one was silent for an hour.
func TestHeartbeatOfANodeWithoutARowRegistersItAgain(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	node := aNode()
	node.Filters = map[string]engine.TenantFilter{"p": engine.NewTenantFilter([]string{"a*"})}
	s := present(t, store, node)
	for _, delete := range []bool{false, true} {
		if delete {
			mustExec(t, store, "delete from millrace.nodes")
		}
		before := lastHeartbeat(t, store.database, node.ID)
		noError(t, s.Heartbeat(testContext(t), &engine.NodeSummary{}))
		nodes := must(store.plane().Nodes(testContext(t)))(t)
		if len(nodes) != 1 || !nodes[0].Alive || !nodes[0].HeartbeatAt.After(before) || !nodes[0].Knows("a1", "p") ||
			nodes[0].Knows("b", "p") {
			t.Errorf("registered are %+v", nodes)
		}
	}
}

func TestDesiredStateIsStoredAndNotified(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	tenants := []string{projection.DefaultTenant, newTenant(t, store, "a").Name()}
	must(store.plane().Ensure(testContext(t), projectionsOf(tenants, "p", "q")))(t)
	mustExec(t, store, "update millrace.projections set failed_reason = 'why'")
	listener, id := present(t, store, aNode()), projection.ID{Tenant: "a", Name: "p"}
	row := one[int32](t, store, "select id from millrace.projections where tenant = 'a' and name = 'p'")
	for _, wanted := range []engine.DesiredState{engine.WantPause, engine.WantPause, engine.WantRun} {
		noError(t, store.plane().SetDesiredState(testContext(t), id, wanted))
		if notified := heard(t, listener); !slices.Equal(notified, []engine.Notice{{Control: true, Row: row}}) {
			t.Errorf("%s was notified as %v", wanted, notified)
		}
		want := map[int32]engine.Orders{row: {Desired: wanted}}
		if wanted.Runs() {
			want = nil
		}
		if got, err := store.port().Orders(testContext(t), engine.Node{}, []int32{row - 1, row, row + 1}); err != nil ||
			!maps.Equal(got, want) {
			t.Errorf("%s: wanted are %v, %v", wanted, got, err)
		}
		owner := engine.Node{ID: "22222222-2222-2222-2222-222222222222"}
		mustExec(t, store, "update millrace.leases set owner = $1 where id = $2", owner.ID, row)
		if got, err := store.port().Orders(testContext(t), owner, nil); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: of the node are wanted %v, %v", wanted, got, err)
		}
		mustExec(t, store, "update millrace.leases set owner = null")
		if failed := one[int](t, store,
			"select count(failed_reason) from millrace.projections"); (failed == 3) != wanted.Runs() || failed < 3 {
			t.Errorf("%s: %d projections are failed", wanted, failed)
		}
		claimable := map[engine.DesiredState]int{engine.WantRun: 2, engine.WantPause: 1}[wanted]
		if got := free(t, store, engine.Node{Projections: []string{"p"}}); got != [2]int{claimable, claimable} {
			t.Errorf("%s: %v leases are free, want %d", wanted, got, claimable)
		}
	}
	if got, err := store.port().Orders(testContext(t), engine.Node{}, []int32{}); err != nil || len(got) != 0 {
		t.Errorf("of none are wanted %v, %v", got, err)
	}
	for unknown, want := range map[projection.ID]error{
		{Name: "r"}: projection.ErrUnknownProjection, {Tenant: "b", Name: "p"}: tenancy.ErrUnknown,
	} {
		if err := store.plane().SetDesiredState(testContext(t), unknown, engine.WantPause); !errors.Is(err, want) {
			t.Errorf("%v: %v", unknown, err)
		}
	}
	if notified := heard(t, listener); len(notified) != 0 {
		t.Errorf("an unknown projection was notified as %v", notified)
	}
}

func TestStatusShowsForHowLongALeaseHadNoOwner(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	rows := ensured(t, store, "dead", "free", "held")
	for i := range 2 {
		node := aNode()
		present(t, store, node)
		claimed(t, store, node, true, rows[2*i])
		if i == 0 {
			expire(t, store, node)
		}
	}
	mustExec(t, store,
		"update millrace.leases set free_since = clock_timestamp() - interval '1 min' where free_since is not null")
	var before []engine.ProjectionRow
	for range 2 {
		list, err := store.plane().Projections(testContext(t),
			engine.ProjectionFilter{Tenants: []string{projection.DefaultTenant}})
		if err != nil || len(list) != 3 {
			t.Fatal(list, err)
		}
		for i, least := range []time.Duration{time.Second, time.Minute} {
			if p := list[i]; p.OwnerAlive || (p.Owner == "") != (i == 1) || p.NotOwned < least ||
				p.NotOwned > least+hangs || before != nil && p.NotOwned <= before[i].NotOwned {
				t.Errorf("%+v, before %+v", p, before)
			}
		}
		if p := list[2]; !p.OwnerAlive || p.Owner == "" || p.NotOwned != 0 || p.Epoch != 1 {
			t.Errorf("%+v", p)
		}
		before = list
	}
}

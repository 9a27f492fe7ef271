package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// ensured makes projections of the default tenant, and returns their rows.
func ensured(t testing.TB, store *Store, names ...string) (rows []int32) {
	t.Helper()
	must(store.plane().Ensure(testContext(t), newProjections(projection.DefaultTenant, names...)))(t)
	for _, name := range names {
		rows = append(rows, one[int32](t, store, "select id from millrace_projections where tenant = 1 and name = ?1",
			name))
	}
	return rows
}

// leaseState is the state of a lease in the file. free reports whether free_since is set.
type leaseState struct {
	owner      string
	free       bool
	crashCount int
	epoch      int64
}

func stateOf(t testing.TB, store *Store, row int32) (s leaseState) {
	t.Helper()
	noError(t, store.DB().QueryRowContext(testContext(t),
		"select coalesce(owner, ''), free_since is not null, crash_count, epoch from millrace_leases where id = ?1",
		row).
		Scan(&s.owner, &s.free, &s.crashCount, &s.epoch))
	return s
}

func TestEnsureMayBeCalledByManyAtOnce(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	other := openStore(t, store.path, Options{Synchronous: SynchronousNormal})
	noError(t, store.CreateTenants(testContext(t), "b", "archived", "paused"))
	noError(t, errors.Join(store.ArchiveTenant(testContext(t), "archived"),
		store.plane().SetTenantDesired(testContext(t), "paused", engine.WantPause)))
	var list []engine.NewProjection
	for _, tenant := range []string{projection.DefaultTenant, "b", "none", "archived", "paused"} {
		list = append(list, engine.NewProjection{Tenant: tenant, Name: "p"},
			engine.NewProjection{Tenant: tenant, Name: "q", Partitions: 3})
	}
	noError(t, together(8, func(i int) error {
		_, err := []*Store{store, other}[i%2].plane().Ensure(testContext(t), list)
		return err
	}))
	got := must(texts(store,
		`select t.name || ' ' || p.name || ' ' || group_concat(p.partition || ' of ' || p.partitions || ' from ' || slot_from || ' to ' || slot_to, ', ')
		|| ' suspended ' || sum(suspended) || ' tokens ' || count(distinct token) || ' leases ' || count(l.free_since)
		from millrace_projections p join millrace_tenants t on t.id = p.tenant left join millrace_leases l on l.id = p.id group by t.name, p.name order by 1`))(t)
	var want []string
	for _, tenant := range []string{"b", projection.DefaultTenant, "paused"} {
		suspended := map[string]int{"paused": 1}[tenant]
		want = append(want, fmt.Sprintf("%s p 0 of 1 from 0 to 268435456 suspended %d tokens 1 leases 1",
			tenant, suspended),
			fmt.Sprintf("%s q 1 of 3 from 0 to %d, 2 of 3 from %d to %d, 3 of 3 from %d to 268435456 suspended %d tokens 1 leases 3", tenant,
				partition.RangeOf(1, 3).To, partition.RangeOf(2, 3).From, partition.RangeOf(2, 3).To,
				partition.RangeOf(3, 3).From, 3*suspended))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the rows are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if tokens := one[int](t, store, "select count(distinct token) from millrace_projections"); tokens != 6 {
		t.Errorf("%d tokens of 6 projections", tokens)
	}
}

// texts returns the texts of a statement of the test.
func texts(store *Store, query string, args ...any) (list []string, err error) {
	rows, err := store.DB().Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, rows.Err()
}

func TestClaimTakesRequestedLeasesThatAreFreeAndNotPaused(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx, s := testContext(t), store.port()
	names := []string{"dead", "free", "held", "not asked for", "paused", "suspended"}
	rows := ensured(t, store, names[:5]...)
	newTenant(t, store, "other")
	must(s.store.plane().Ensure(ctx, newProjections("other", "suspended")))(t)
	noError(t, s.store.plane().SetTenantDesired(ctx, "other", engine.WantPause))
	rows = append(rows, one[int32](t, store, "select max(id) from millrace_projections"))
	gone, node := newNode("p"), newNode("p")
	before := connect(t, store, gone)
	must(s.Claim(ctx, gone, rows[:1], true))(t)
	noError(t, before.Close(ctx))
	connect(t, store, node)
	must(s.Claim(ctx, node, rows[2:3], true))(t)
	mustExec(t, store, "update millrace_leases set crash_count = 2, checkpoint = 7 where id <= ?1", rows[2])
	mustExec(t, store,
		`update millrace_projections set failed_reason = 'why', failed_epoch = 0, attempts = 3, failing_position = 8, failing_since = 1000000, last_error = 'bad',
		passed = '[[0,10,5],[10,20,9]]' where id = ?1`, rows[1])
	noError(t, s.store.plane().SetDesiredState(ctx, projection.ID{Name: "paused"}, engine.WantPause))
	asked := slices.Concat(rows[:3], rows[4:], []int32{rows[4] + 1000})
	id := func(i int) projection.ID { return engine.FullID(projection.ID{Name: names[i]}) }
	all := partition.Share{Range: partition.All}
	// 5 is below the checkpoint
	some := partition.Share{
		Range: partition.All, Passed: []partition.Passed{{Range: partition.Range{From: 10, To: 20}, Position: 9}},
	}
	want := []engine.Lease{
		{
			Row: rows[0], ID: id(0), Owner: node.ID, Epoch: 2, Checkpoint: 7, CrashCount: 3, Desired: engine.WantRun,
			Share: all,
		},
		{Row: rows[1], ID: id(1), Owner: node.ID, Epoch: 1, Checkpoint: 7, CrashCount: 2, Desired: engine.WantRun,
			Share: some,
			// the owner that failed is another
			Attempts: 3, FailingPosition: 8, FailingSince: time.UnixMicro(1_000_000)},
	}
	for i := range want {
		want[i].Partitions, want[i].Incarnation, want[i].TenantRow = 1, incarnation, 1
	}
	claimed := must(s.Claim(ctx, node, asked, true))(t)
	if !reflect.DeepEqual(claimed, want) {
		t.Errorf("claimed %+v, want %+v", claimed, want)
	}
	for i, want := range []leaseState{{node.ID, false, 3, 2}, {node.ID, false, 2, 1}, {node.ID, false, 2, 1},
		{"", true, 0, 0}, {"", true, 0, 0}, {"", true, 0, 0}} {
		if got := stateOf(t, store, rows[i]); got != want {
			t.Errorf("%s: %+v, want %+v", names[i], got, want)
		}
	}
	if again := must(s.Claim(ctx, node, asked, true))(t); len(again) != 0 {
		t.Errorf("the node claimed its own leases again: %+v", again)
	}
	owned := must(s.Owned(ctx, node))(t)
	if read := must(s.Leases(ctx, append(slices.Clone(asked), asked...)))(t); len(owned) != 3 ||
		!reflect.DeepEqual(owned[:2], want) || !reflect.DeepEqual(read[:3], owned) || len(read) != 5 {
		t.Errorf("owned are %+v, read are %+v", owned, read)
	}
}

func TestLeaseHasFailuresParkedStreamsAndCommands(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	row := ensured(t, store, "p")[0]
	mustExec(t, store,
		`update millrace_projections set failed_reason = 'halted', failed_epoch = 77, halted = 1, failing_since = 5, crash_since = 7000000, crash_attempts = 2,
		crash_position = 3, parked = 4, tenant_suspended = 1 where id = ?1`, row)
	mustExec(t, store, "insert into millrace_parked_streams (projection, stream_id) values (?1, 's')", row)
	mustExec(t, store,
		"insert into millrace_commands (projection, kind, max_events, created_at) values (?1, 'replay', 1, 0)", row)
	l := must(store.port().Leases(testContext(t), []int32{row}))(t)[0]
	if l.Failed != "halted" || !l.Halted || l.CrashPosition != 3 || l.CrashAttempts != 2 ||
		!l.FailingSince.Equal(time.UnixMicro(7_000_000)) || l.Parked != 4 ||
		!l.ParkedStreams || !l.HasCommands || l.Desired.Runs() || l.Owner != "" {
		t.Errorf("the lease is %+v", l)
	}
	mustExec(t, store, "update millrace_commands set ended_at = 1")
	mustExec(t, store, "update millrace_projections set halted = 0")
	if l := must(store.port().Leases(testContext(t), []int32{row}))(t)[0]; l.HasCommands || l.Failed != "" {
		t.Errorf("an ended command and a failure of another epoch count: %+v", l)
	}
}

func TestFreeLeasesAreThoseThatTheNodeCanRun(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	s, tenants := store.port(), []string{projection.DefaultTenant, "a1", "a2", "b"}
	noError(t, store.CreateTenants(testContext(t), tenants[1:]...))
	for _, tenant := range tenants {
		must(s.store.plane().Ensure(testContext(t), newProjections(tenant, "p", "q", "unknown")))(t)
	}
	node := newNode("p", "q")
	node.Tenants = tenants[1:]
	node.Filters = map[string]engine.TenantFilter{"p": engine.NewTenantFilter([]string{"a?", "default"})}
	found := func() (ids []string) {
		for _, l := range must(s.Free(testContext(t), node, true, true))(t) {
			ids = append(ids, l.ID.Tenant+" "+l.ID.Name)
		}
		slices.Sort(ids)
		return ids
	}
	if got := found(); len(got) != 0 {
		t.Errorf("a node that does not own the file finds %v", got)
	}
	connect(t, store, node)
	if got, want := found(), []string{"a1 p", "a1 q", "a2 p", "a2 q", "b q"}; !slices.Equal(got, want) {
		t.Errorf("free are %v, want %v", got, want)
	}
	noError(t, errors.Join(s.store.plane().SetTenantDesired(testContext(t), "a1", engine.WantPause),
		s.store.plane().SetDesiredState(testContext(t), projection.ID{Tenant: "a2", Name: "p"}, engine.WantPause)))
	mustExec(t, store,
		"update millrace_leases set owner = ?1 where id in (select id from millrace_projections where name = 'q')",
		"a dead node")
	if got, want := found(), []string{"a2 q", "b q"}; !slices.Equal(got, want) {
		t.Errorf("free are %v, want %v", got, want)
	}
	if dead := must(s.Free(testContext(t), node, true, false))(t); len(dead) != 2 {
		t.Errorf("of dead owners are %v, want 2", dead)
	}
	mustExec(t, store, "update millrace_leases set owner = null where owner = ?1", "a dead node")
	if dead := must(s.Free(testContext(t), node, true, false))(t); len(dead) != 0 {
		t.Errorf("without an owner are %v", dead)
	}
	mustExec(t, store, "update millrace_leases set owner = ?1", node.ID)
	if got := found(); len(got) != 0 {
		t.Errorf("own leases are free: %v", got)
	}
}

func TestReleaseFreesLeasesThatAreHeldAndAnnouncesIt(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx, s, node := testContext(t), store.port(), newNode("a", "b", "c")
	ensured(t, store, "a", "b", "c")
	session := connect(t, store, node)
	leases := claimAll(t, store, node)
	mustExec(t, store, "update millrace_leases set crash_count = 2, checkpoint = 10")
	release := func(announced bool, advances ...engine.Advance) {
		t.Helper()
		before := one[int](t, store, "select count(*) from millrace_notices")
		noError(t, s.Release(ctx, advances))
		if after := one[int](t, store, "select count(*) from millrace_notices"); (after > before) != announced {
			t.Errorf("the release of %+v was announced or not: %v", advances, after > before)
		}
		if announced {
			next(t, session, func(n engine.Notice) bool { return n == engine.Notice{Control: true} })
		}
	}
	for i := range leases {
		leases[i].Checkpoint = 10
	}
	stale, behind := leases[2], leases[1]
	stale.Epoch--
	behind.Checkpoint = 9
	release(false)
	release(false, engine.Advance{Lease: stale, To: 20})
	release(true, engine.Advance{Lease: leases[0], To: 20}, engine.Advance{Lease: behind, To: 20},
		engine.Advance{Lease: stale, To: 20})
	for i, want := range []leaseState{{"", true, 2, 1}, {"", true, 2, 1}, {node.ID, false, 2, 1}} {
		if got := stateOf(t, store, leases[i].Row); got != want {
			t.Errorf("after the release: %+v, want %+v", got, want)
		}
	}
	if got, want := must(texts(store, "select checkpoint from millrace_leases order by id"))(t),
		[]string{"20", "10", "10"}; !slices.Equal(got, want) {
		t.Errorf("checkpoints %v, want %v: the second moved meanwhile", got, want)
	}
	release(false, engine.Advance{Lease: leases[0]})
	if claimed := claimAll(t, store, node); len(claimed) != 2 || claimed[0].Epoch != 2 || claimed[0].CrashCount != 2 {
		t.Errorf("claimed again: %+v", claimed)
	}
}

func TestReleaseTakesBackAttemptsThatWereCountedInAdvance(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx, s, node := testContext(t), store.port(), newNode("a", "b", "c")
	rows := ensured(t, store, "a", "b", "c")
	connect(t, store, node)
	leases := claimAll(t, store, node)
	mustExec(t, store, "update millrace_projections set crash_position = 5, crash_attempts = 3")
	for _, row := range rows {
		for range 2 {
			mustExec(t, store,
				`insert into millrace_dead_letters (projection, position, stream_id, version, type, state, error, stack, attempts, open_replays, last_command, first_failed_at, last_failed_at)
				values (?1, (select count(*) from millrace_dead_letters), 's', 1, 'T', 'replaying', '', '', 1, 1 + (select count(*) from millrace_dead_letters where projection = ?1), 9, 0, 0)`, row)
		}
	}
	// Dead letters 1, 3 and 5 have one open replay, 2, 4 and 6 have two.
	stale := leases[2]
	stale.Epoch--
	noError(t, s.Release(ctx, []engine.Advance{
		{Lease: leases[0], Begun: engine.Begun{Position: 5, Attempt: 3}, Replaying: 1},
		{Lease: leases[1], Begun: engine.Begun{Position: 5, Attempt: 2}, Replaying: 4},
		{Lease: stale, Begun: engine.Begun{Position: 5, Attempt: 3}, Replaying: 5},
	}))
	if got, want := must(texts(store, "select crash_attempts from millrace_projections order by id"))(t),
		[]string{"2", "3", "3"}; !slices.Equal(got, want) {
		t.Errorf("attempts %v, want %v", got, want)
	}
	got := must(texts(store,
		"select state || ' ' || open_replays || ' ' || last_command from millrace_dead_letters order by id"))(t)
	if want := []string{"parked 0 0", "replaying 2 9", "replaying 1 9", "replaying 1 9", "replaying 1 9",
		"replaying 2 9"}; !slices.Equal(got, want) {
		t.Errorf("dead letters %v, want %v", got, want)
	}
}

func TestAdvanceMovesCheckpointsUnderTheirFences(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx, s, node := testContext(t), store.port(), newNode("a", "b", "c", "d", "idle")
	ensured(t, store, "a", "b", "c", "d", "idle")
	connect(t, store, node)
	leases := claimAll(t, store, node)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(20)...)
	mustExec(t, store, "update millrace_leases set crash_count = 2, checkpoint = 10")
	for i := range leases {
		leases[i].Checkpoint = 10
	}
	epoch, old, foreign := leases[1], leases[2], leases[3]
	epoch.Epoch++
	old.Checkpoint = 9
	mustExec(t, store, "update millrace_leases set owner = 'another' where id = ?1", foreign.Row)
	moved := must(s.Advance(ctx, []engine.Advance{{Lease: leases[0], To: 20},
		{Lease: epoch, To: 20}, {Lease: old, To: 20}, {Lease: foreign, To: 20}, {Lease: leases[4], To: 10}}))(t)
	if want := map[int32]bool{leases[0].Row: true, leases[4].Row: true}; !maps.Equal(moved, want) {
		t.Errorf("moved %v, want %v", moved, want)
	}
	got := must(texts(store, "select checkpoint || ' ' || crash_count from millrace_leases order by id"))(t)
	if want := []string{"20 2", "10 2", "10 2", "10 2", "10 0"}; !slices.Equal(got, want) {
		t.Errorf("checkpoints and crash counts %v, want %v", got, want)
	}
	if moved := must(s.Advance(ctx, nil))(t); len(moved) != 0 {
		t.Errorf("nothing moved: %v", moved)
	}
}

// The statement returns its rows before the commit.
func TestAdvanceThatDoesNotCommitMovesNothing(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	node := newNode("p")
	ensured(t, store, "p")
	connect(t, store, node)
	lease := claimAll(t, store, node)[0]
	mustExec(t, store, "create table refused (of integer references refused (of) deferrable initially deferred)")
	mustExec(t, store,
		"create trigger millrace_leases_update_closed after update on millrace_leases begin insert into refused values (1); end")
	must(store.writer.db.Exec("pragma foreign_keys = on"))(t)
	moved, err := store.port().Advance(testContext(t), []engine.Advance{{Lease: lease, To: 1}})
	if err == nil || len(moved) != 0 {
		t.Errorf("moved %v, error %v", moved, err)
	}
}

// One statement for all leases must not compare each lease of the owner with each row of its argument.
func TestStatementsForManyLeasesSearchThemByTheirKeys(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	for _, statement := range []string{"claim", "leases", "advance_many", "release", "orders"} {
		if plan := explain(t, store, queries.Text(statement)); !strings.Contains(plan,
			"using integer primary key (rowid=?)") ||
			strings.Contains(plan, "millrace_leases using index millrace_leases_owner") {
			t.Errorf("%s: %s", statement, plan)
		}
	}
	for _, statement := range []string{"free_leases", "overview"} {
		if plan := explain(t, store, queries.Text(statement)); strings.Count(plan,
			"millrace_leases_owner (owner") != 3 {
			t.Errorf("%s: %s", statement, plan)
		}
	}
}

// between is a port that calls meanwhile after Ensure has decided which projections get rows, and before it inserts
// them.
type between struct {
	port
	meanwhile func()
}

func (b between) Begins(ctx context.Context, projections []engine.NewProjection) (store.Begins, error) {
	b.meanwhile()
	return b.port.Begins(ctx, projections)
}

// A name is retired after Ensure has looked for rows and before it inserts them.
func TestNameThatIsRetiredMeanwhileIsNotCreated(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	meanwhile := func() {
		mustExec(t, s,
			"insert into millrace_retired_projections (tenant, name, reason, retired_at) select id, 'gone', 'forgotten', 0 from millrace_tenants")
	}
	left := must(control.On(between{s.port(), meanwhile}).Ensure(testContext(t),
		newProjections(projection.DefaultTenant, "gone", "p")))(t)
	if rows := one[string](t, s, "select group_concat(name, ' ') from millrace_projections"); rows != "p" ||
		len(left.Retired) != 1 {
		t.Errorf("projections: %s, left out %+v", rows, left)
	}
}

// Processes of two releases find no rows. Before the later release inserts them, the earlier release creates the rows,
// or another rename retires the earlier name.
func TestEarlierReleaseThatIsQuickerKeepsItsName(t *testing.T) {
	t.Parallel()
	s, ctx := newStore(t), testContext(t)
	connect(t, s, engine.Node{ID: uuid.NewString(), Projections: []string{"sums", "means"}, LeaseDuration: time.Hour})
	list := []engine.NewProjection{
		{Tenant: "default", Name: "sums", RenamedFrom: "totals"},
		{Tenant: "default", Name: "means@2", RenamedFrom: "averages"},
	}
	meanwhile := func() {
		must(s.plane().Ensure(ctx, newProjections(projection.DefaultTenant, "totals", "x", "totals@3x")))(t)
		mustExec(t, s,
			"insert into millrace_retired_projections (tenant, name, reason, successor, retired_at) select id, 'averages', 'renamed', 'x', 0 from millrace_tenants")
	}
	left := must(control.On(between{s.port(), meanwhile}).Ensure(ctx, list))(t)
	if rows := one[string](t, s,
		"select group_concat(name, ' ' order by name) from millrace_projections"); rows != "totals totals@3x x" {
		t.Errorf("projections: %s", rows)
	}
	if len(left.Waiting) != 1 || left.Waiting[0].ID() != list[0].ID() || len(left.Retired) != 1 ||
		left.Retired[0].Name != "means@2" || left.Retired[0].Successor != "x" {
		t.Errorf("left out: %+v", left)
	}
}

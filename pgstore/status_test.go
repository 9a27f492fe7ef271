package pgstore

import (
	"cmp"
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

var manyProjections = flag.Int("projections", 20_000, "how many projections the tests of Summary and Status have")

// registered makes the row of a node without a session.
func registered(t *testing.T, store *Store, node engine.Node) {
	t.Helper()
	none := []string{}
	mustExec(t, store, store.control.sql("register"), node.ID, node.Projections, none, none, none, 1,
		time.Hour.Microseconds(), node.Name)
}

// mixed is a store with projections in all states: 8 in each of 50 tenants, 3 partitions of some, with leases of two
// living nodes, of a dead one, and without an owner.
func mixed(t *testing.T) (store *Store, nodes []engine.Node) {
	t.Helper()
	store = newStore(t)
	for range 3 {
		node := aNode()
		registered(t, store, node)
		nodes = append(nodes, node)
	}
	expire(t, store, nodes[2])
	mustExec(t, store,
		`insert into millrace.tenants (tenant, schema_name, version) select 't' || n, 's' || n, 1 from generate_series(1, 50) n`)
	mustExec(t, store,
		`insert into millrace.projections (tenant, name, partition, partitions, desired_state, failed_reason, failed_epoch, halted, failing_position, attempts, missing_object, last_error, parked)
		select 't' || t, 'p' || n, i, case i when 0 then 1 else 3 end, (array['run', 'run', 'run', 'pause'])[1 + floor(random() * 4)],
		       (array['bad', null, null, ''])[1 + floor(random() * 4)], floor(random() * 2), random() < 0.1, (array[0, 3, 7])[1 + floor(random() * 3)],
		       floor(random() * 2), random() < 0.3, 'error', (array[0, 0, 1])[1 + floor(random() * 3)]
		  from generate_series(1, 50) t, generate_series(1, 8) n, generate_series(0, 3) i where (n = 8) = (i > 0)`)
	mustExec(t, store,
		`update millrace.tenants set paused = tenant like 't%3' or tenant in ('t7', 't17'), state = case when tenant like 't%9' or tenant = 't7' then 'archived' else 'active' end`)
	mustExec(t, store,
		`update millrace.projections p set tenant_suspended = t.paused or t.state <> 'active' from millrace.tenants t where t.tenant = p.tenant`)
	mustExec(t, store, `insert into millrace.leases (id, owner, epoch, checkpoint, free_since)
		select p.id, x.owner, 1, 5, case when x.owner is null then now() - make_interval(secs => p.id % 10) end
		  from millrace.projections p cross join lateral (select ($1::uuid[])[1 + floor(random() * 5 + p.id * 0)] as owner) x`, []string{nodes[0].ID, nodes[1].ID, nodes[2].ID})
	mustExec(t, store,
		`insert into millrace.dead_letters (projection_id, position, stream_id, stream_version, type, error, stack, attempts, first_failed_at, last_failed_at)
		select id, 1, 's', 1, 'T', 'bad', 'stack', 5, now() - make_interval(secs => id), now() from millrace.projections where parked > 0`)
	return store, nodes
}

// matches reports whether a row matches a filter, except for its page.
func matches(f engine.ProjectionFilter, r engine.ProjectionRow) bool {
	in := func(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }
	return in(f.Tenants, r.ID.Tenant) && in(f.Names, r.ID.Name) && (f.IDs == nil || slices.Contains(f.IDs, r.ID)) &&
		in(f.States, r.State) &&
		(f.Owner == "" || r.Owner == f.Owner) && (f.NotOwner == "" || r.Owner != f.NotOwner) &&
		(!f.Parked || r.Parked > 0)
}

// stateOfRow is the state of a row as engine.ProjectionRow.State documents it.
func stateOfRow(r engine.ProjectionRow, missingObject bool) string {
	failing := r.FailingPosition > r.Checkpoint
	switch {
	case !r.Desired.Runs():
		return "paused"
	case r.Halted:
		return "failed"
	case !r.OwnerAlive:
		return "not owned"
	case r.Failed != "":
		return "failed"
	case failing && missingObject:
		return "missing object"
	case failing:
		return "waiting"
	}
	return "elsewhere"
}

func TestFilterSelectsTheRowsThatMatchPageByPage(t *testing.T) {
	t.Parallel()
	store, nodes := mixed(t)
	all := must(store.plane().Projections(testContext(t), engine.ProjectionFilter{}))(t)
	if len(all) != 50*(7+3) ||
		!slices.IsSortedFunc(all, func(a, b engine.ProjectionRow) int { return engine.CompareIDs(a.ID, b.ID) }) {
		t.Fatalf("%d rows, sorted or not", len(all))
	}
	missing := make(map[projection.ID]bool)
	rows, _ := store.pool.Query(testContext(t),
		"select tenant, name, partition from millrace.projections where missing_object")
	for _, id := range must(pgx.CollectRows(rows, pgx.RowToStructByPos[projection.ID]))(t) {
		missing[id] = true
	}
	states := make(map[string]int)
	for _, r := range all {
		states[r.State]++
		if r.State != stateOfRow(r, missing[r.ID]) {
			t.Errorf("%s: %+v, want %s", r.State, r, stateOfRow(r, missing[r.ID]))
		}
	}
	if len(states) != 6 {
		t.Fatalf("only these states: %v", states)
	}
	filters := []engine.ProjectionFilter{
		{Tenants: []string{"t7"}}, {Tenants: []string{"t7", "t10", "none"}, Names: []string{"p8", "p1"}},
		{Names: []string{"p3"}},
		{
			IDs: []projection.ID{
				{Tenant: "t3", Name: "p1"}, {Tenant: "t3", Name: "p8", Partition: 2}, {Tenant: "t3", Name: "p8"},
			},
		},
		{Owner: nodes[0].ID}, {Owner: nodes[2].ID, Parked: true},
		{NotOwner: nodes[0].ID, States: []string{"elsewhere", "paused"}},
		{Tenants: []string{}, Names: []string{}, States: []string{}}, {States: []string{"nothing"}}, {Parked: true},
	}
	for state := range states {
		filters = append(filters, engine.ProjectionFilter{States: []string{state}},
			engine.ProjectionFilter{States: []string{state}, Parked: true, Names: []string{"p1", "p8"}})
	}
	found := 0
	for _, f := range filters {
		for _, limit := range []int{0, 1, 7, 1000} {
			f.Limit, f.After = limit, projection.ID{}
			var want, got []projection.ID
			for _, r := range all {
				if matches(f, r) {
					want = append(want, r.ID)
				}
			}
			for {
				page := must(store.plane().Projections(testContext(t), f))(t)
				for _, r := range page {
					got = append(got, r.ID)
				}
				if limit > 0 && len(page) > limit {
					t.Errorf("%+v: %d rows on a page", f, len(page))
				}
				if limit == 0 || len(page) < limit {
					break
				}
				f.After = page[len(page)-1].ID
			}
			found += len(got)
			if !slices.Equal(got, want) {
				t.Errorf("%+v: got %v, want %v", f, got, want)
			}
		}
	}
	if found == 0 {
		t.Error("no filter selected anything")
	}
}

func TestOverviewCountsWhatNoLivingNodeRuns(t *testing.T) {
	t.Parallel()
	store, nodes := mixed(t)
	for _, dead := range [][]engine.Node{nil, nodes[:1], nodes[1:2]} {
		for _, node := range dead {
			expire(t, store, node)
		}
		const patience = 5 * time.Second
		byTenant, notOwned, overdue := []string{"p1", "none"}, 0, 0
		want := engine.Overview{
			Tenants: map[tenancy.State]int{tenancy.Active: 39, tenancy.Paused: 6, tenancy.Archived: 6},
		}
		for _, r := range must(store.plane().Projections(testContext(t), engine.ProjectionFilter{}))(t) {
			want.Parked += r.Parked
			if !r.OldestParked.IsZero() && (want.OldestParked.IsZero() || r.OldestParked.Before(want.OldestParked)) {
				want.OldestParked, want.OldestParkedIn = r.OldestParked, r.ID
			}
			switch {
			case r.OwnerAlive:
			case !r.Desired.Runs():
				want.Paused++
			case r.Halted:
				want.Halted++
			default:
				n := engine.NotOwned{Name: r.ID.Name}
				if slices.Contains(byTenant, n.Name) {
					n.Tenant = r.ID.Tenant
				}
				at := slices.IndexFunc(want.NotOwned,
					func(o engine.NotOwned) bool { return o.Name == n.Name && o.Tenant == n.Tenant })
				if at < 0 {
					at, want.NotOwned = len(want.NotOwned), append(want.NotOwned, n)
				}
				want.NotOwned[at].Count++
				notOwned++
				if r.NotOwned > patience {
					want.NotOwned[at].Overdue++
					overdue++
				}
			}
		}
		slices.SortFunc(want.NotOwned, func(a, b engine.NotOwned) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Tenant, b.Tenant))
		})
		got := must(store.plane().Overview(testContext(t), patience, byTenant))(t)
		late := -overdue // leases whose time ran out meanwhile
		for i, n := range got.NotOwned {
			late += n.Overdue
			if i < len(want.NotOwned) {
				got.NotOwned[i].Overdue = want.NotOwned[i].Overdue
			}
		}
		if !reflect.DeepEqual(got, want) || late < 0 || late > notOwned/5 || want.Paused*want.Halted*overdue == 0 ||
			want.Parked == 0 {
			t.Errorf("got %+v and %d overdue meanwhile, want %+v", got, late, want)
		}
	}
}

// A text of a handler must not keep a node from sending heartbeats: its leases would expire.
func TestSummaryIsWrittenAndShortWhateverItsTexts(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	node := aNode()
	session := present(t, store, node)
	own := func() *engine.NodeSummary {
		t.Helper()
		nodes := must(store.plane().Nodes(testContext(t)))(t)
		if len(nodes) != 1 {
			t.Fatalf("%d nodes", len(nodes))
		}
		return nodes[0].Summary
	}
	if got := own(); got == nil || !reflect.DeepEqual(*got, engine.NodeSummary{}) {
		t.Errorf("a new node has the summary %+v", got)
	}
	for _, reason := range []string{"bad", "\x00", "a\xff\xfeb", `\u0000`, "\xed\xa0\x80",
		strings.Repeat("ä\x00", 1<<20), "\"'\n\t\u2028", "{}"} {
		full := engine.NodeSummary{States: map[string]int{"live": 3}}
		for i := range engine.MaxSummarized {
			full.Lagging = append(full.Lagging,
				engine.LaggingProjection{
					ID: projection.ID{Tenant: strings.Repeat("t", 200), Name: fmt.Sprint("p", i)}, Mark: 1 << 62,
					Reason: reason,
				})
			full.Held = append(full.Held, engine.HeldTenant{Tenant: fmt.Sprint("t", i),
				Since: time.Now(), Reason: reason,
				Held: &engine.Held{Below: 7, Holders: slices.Repeat([]string{"backend 4711"}, 1000)}})
		}
		noError(t, session.Heartbeat(testContext(t), &full))
		got := own()
		if got == nil || len(got.Lagging) != engine.MaxSummarized || got.Lagging[3].ID != full.Lagging[3].ID ||
			got.Held[3].Held.Below != 7 || got.States["live"] != 3 {
			t.Errorf("%.20q: read as %+v", reason, got)
		}
		if bytes := one[int](t, store, "select length(summary::text) from millrace.nodes"); bytes > 32<<10 {
			t.Errorf("%.20q: %d bytes", reason, bytes)
		}
		mustExec(t, store, "update millrace.nodes set summary = null")
		noError(t, session.Heartbeat(testContext(t), &full))
		if again := own(); again != nil {
			t.Errorf("%.20q: a heartbeat with the same summary wrote it again", reason)
		}
		mustExec(t, store, "delete from millrace.nodes")
		noError(t, session.Heartbeat(testContext(t), &full))
		if again := own(); !reflect.DeepEqual(got, again) {
			t.Errorf("%.20q: a node that registered again has the summary %+v", reason, again)
		}
		if len(full.Held[0].Held.Holders) != 1000 || full.Lagging[0].Reason != reason {
			t.Error("the node's own summary was changed")
		}
	}
	for _, other := range []string{"null", "'7'", `'{"states": ["another form"]}'`} {
		mustExec(t, store, "update millrace.nodes set summary = "+other)
		if got := own(); got != nil {
			t.Errorf("%s is read as %+v", other, got)
		}
	}
}

// large is a store with many projections: 10 in each tenant, whose leases four living nodes hold. The tenants have no
// schemas.
func large(t *testing.T) (store *Store, nodes []engine.Node) {
	t.Helper()
	dsn := pgtest.Database(t)
	migrated(t, openStore(t, dsn, Options{}))
	store = openStore(t, dsn, Options{}, connections(1),
		func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["max_parallel_workers_per_gather"] = "0" })
	for _, table := range []string{"leases", "projections", "dead_letters", "nodes", "tenants"} {
		// Otherwise the server may analyse at any time.
		mustExec(t, store, "alter table millrace."+table+" set (autovacuum_enabled = off)")
	}
	mustExec(t, store,
		`insert into millrace.tenants (tenant, schema_name, version) select 't' || n, 's' || n, 1 from generate_series(1, $1::integer) n`, *manyProjections/10)
	mustExec(t, store,
		`insert into millrace.projections (tenant, name) select 't' || t, 'p' || n from generate_series(1, $1::integer) t, generate_series(1, 10) n`, *manyProjections/10)
	var owners []string
	for range 4 {
		node := aNode()
		summary := fmt.Sprintf(`{"states": {"live": %d}, "lagging": [{"id": {"Tenant": "t7", "Name": "p3"}, "state": "waiting", "mark": 9}]}`, *manyProjections/4)
		registered(t, store, node)
		mustExec(t, store, "update millrace.nodes set summary = $2 where id = $1", node.ID, summary)
		nodes, owners = append(nodes, node), append(owners, node.ID)
	}
	mustExec(t, store,
		`insert into millrace.leases (id, owner, epoch, checkpoint, free_since) select id, ($1::uuid[])[1 + id % 4], 7, 40, null from millrace.projections`, owners)
	return store, nodes
}

func TestStatementsOfStatusReadWhatTheySelect(t *testing.T) {
	t.Parallel()
	store, _ := large(t)
	args := control.ProjectionArgs
	list := store.control.sql("projections")
	statements := map[string]struct {
		sql  string
		args []any
		// rows is how many it returns, most how many rows of leases and of projections it may read.
		rows, most int64
		// guessed plans are right only once the tables have been analysed.
		guessed bool
	}{
		"one projection": {
			list, args(engine.ProjectionFilter{Tenants: []string{"t7"}, Names: []string{"p3"}}), 1, 1, false,
		},
		"one tenant": {list, args(engine.ProjectionFilter{Tenants: []string{"t7"}}), 10, 10, false},
		"a slice of RunUntilIdle": {
			list, args(engine.ProjectionFilter{Tenants: []string{"t7", "t8", "t9"}, Names: []string{"p1", "p2"}}), 6,
			30, false,
		},
		"named rows": {
			list,
			args(engine.ProjectionFilter{IDs: []projection.ID{{Tenant: "t7", Name: "p3"}, {Tenant: "t8", Name: "p3"}}}),
			2, 4, false,
		},
		"the first page": {list, args(engine.ProjectionFilter{Limit: 100}), 100, 110, false},
		"a page in the middle": {
			list, args(engine.ProjectionFilter{Limit: 100, After: projection.ID{Tenant: "t5", Name: "p5"}}), 100, 110,
			false,
		},
		"parked":   {list, args(engine.ProjectionFilter{Limit: 100, Parked: true}), 0, 10, true},
		"overview": {store.control.sql("overview"), []any{5 * time.Second, []string{}}, 1, 20, true},
		"lags of two tenants": {store.control.sql("lags"),
			control.LagArgs(engine.LagFilter{Heads: map[string]int64{"t7": 50, "t8": 60}, States: []string{"elsewhere"},
				Reported: []projection.ID{{Tenant: "t7", Name: "p3"}}, Limit: 5}), 5, 20, false},
		"settled floors": {store.control.sql("settled_floors"), []any{[]string{"t7", "t8"}}, 2, 20, false},
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			mustExec(t, store,
				"vacuum analyze millrace.leases, millrace.projections, millrace.nodes, millrace.dead_letters, millrace.tenants")
		}
		for name, s := range statements {
			if s.guessed && !analyzed {
				continue
			}
			read := readBy(t, store, queries.Text("plan_for_arguments"), func(tx pgx.Tx) error {
				tag, err := tx.Exec(testContext(t), s.sql, s.args...)
				if tag.RowsAffected() != s.rows {
					t.Errorf("%s: %d rows, want %d", name, tag.RowsAffected(), s.rows)
				}
				return err
			})
			if l, p := read["leases"], read["projections"]; l.Scans+p.Scans > 0 || l.Rows > s.most || p.Rows > s.most {
				t.Errorf("%s, analyzed %v: leases %+v, projections %+v\n%s", name, analyzed, l, p,
					explain(t, store, s.sql, s.args...))
			}
		}
	}
	// The control: a filter by state reads all rows.
	if read := readBy(t, store, queries.Text("plan_for_arguments"), func(tx pgx.Tx) error {
		_, err := tx.Exec(testContext(t), list,
			args(engine.ProjectionFilter{Limit: 100, States: []string{"failed"}})...)
		return err
	}); read["projections"].Rows < int64(*manyProjections) {
		t.Errorf("the control reads %+v", read)
	}
}

// Lists of all projections make a generic plan look cheap, and that plan would read all rows for one projection.
func TestStatusOfOneProjectionIsPlannedForItAfterListsOfAll(t *testing.T) {
	t.Parallel()
	store, _ := large(t)
	for range 8 {
		if all := must(store.plane().Projections(testContext(t),
			engine.ProjectionFilter{}))(t); len(all) != *manyProjections {
			t.Fatalf("%d rows", len(all))
		}
	}
	must(store.plane().Projections(testContext(t),
		engine.ProjectionFilter{Tenants: []string{"t7"}, Names: []string{"p3"}}))(t)
	const counted = "select coalesce(sum(%s), 0) from pg_prepared_statements where statement like '%%failing_position%%'"
	custom, generic := one[int](t, store, fmt.Sprintf(counted, "custom_plans")),
		one[int](t, store, fmt.Sprintf(counted, "generic_plans"))
	if custom != 9 || generic != 0 {
		t.Errorf("%d plans for their arguments, %d for any", custom, generic)
	}
}

// The statements of Summary take a small part of the time of a list of all projections, which was needed
// before.
func TestStatementsOfSummaryTakeLittleOfAListOfAll(t *testing.T) {
	store, nodes := large(t)
	mustExec(t, store,
		"vacuum analyze millrace.leases, millrace.projections, millrace.nodes, millrace.dead_letters, millrace.tenants")
	ctx := testContext(t)
	measure := func(what string, fn func() error) (fastest time.Duration) {
		took := make([]time.Duration, 5)
		for i := range took {
			began := time.Now()
			noError(t, fn())
			took[i] = time.Since(began)
		}
		slices.Sort(took)
		t.Logf("%d projections: %s takes %v, mostly %v", *manyProjections, what, took[0], took[len(took)/2])
		return took[0]
	}
	summary := func() error {
		if _, err := store.plane().Overview(ctx, 5*time.Second, nil); err != nil {
			return err
		}
		_, err := store.plane().Nodes(ctx)
		return err
	}
	list := measure("a list of all", func() error {
		_, err := store.plane().Projections(ctx, engine.ProjectionFilter{})
		return err
	})
	if took := measure("a summary while nodes run all", summary); took > list/5 {
		t.Errorf("it took %v, and a list of all %v", took, list)
	}
	for _, node := range nodes {
		expire(t, store, node)
	}
	if took := measure("a summary while no node is alive", summary); took > list {
		t.Errorf("it took %v without nodes, and a list of all %v", took, list)
	}
	overview := must(store.plane().Overview(ctx, 0, nil))(t)
	notOwned, overdue := 0, 0
	for _, n := range overview.NotOwned {
		notOwned, overdue = notOwned+n.Count, overdue+n.Overdue
	}
	if notOwned != *manyProjections || overdue != *manyProjections ||
		overview.Tenants[tenancy.Active] != *manyProjections/10+1 {
		t.Errorf("%+v", overview)
	}
}

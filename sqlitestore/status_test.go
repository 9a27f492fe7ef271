package sqlitestore

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore/internal/ownerlock"
	"github.com/millrace-go/millrace/tenancy"
)

// mixed is a store with projections in all states: 8 in each of 50 tenants, 3 partitions of some, with leases of the
// living owner, of a dead node, and without an owner.
func mixed(t *testing.T) (store *Store, node engine.Node) {
	t.Helper()
	store, node = newStore(t), newNode("p1")
	connect(t, store, node)
	mustExec(t, store,
		"with recursive n (i) as (select 1 union all select i + 1 from n where i < 50) insert into millrace_tenants (name) select 't' || i from n")
	mustExec(t, store,
		"update millrace_tenants set paused = name like 't%3' or name in ('t7', 't17'), state = case when name like 't%9' or name = 't7' then 'archived' else 'active' end")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(from ...any) any { return from[random.IntN(len(from))] }
	now := time.Now()
	for tenant := range 50 {
		for n := 1; n <= 8; n++ {
			for partition := range 4 {
				if (n == 8) != (partition > 0) {
					continue
				}
				parked := pick(0, 0, 1)
				mustExec(t, store,
					`insert into millrace_projections (tenant, name, partition, partitions, token, desired_state, tenant_suspended, failed_reason, failed_epoch, halted, failing_position,
						attempts, missing_object, last_error, parked)
					select id, ?2, ?3, ?4, 'token', ?5, paused or state <> 'active', ?6, ?7, ?8, ?9, ?10, ?11, 'error', ?12 from millrace_tenants where name = ?1`,
					fmt.Sprint("t", tenant+1), fmt.Sprint("p", n), partition, map[bool]int{false: 1, true: 3}[n == 8],
					pick("run", "run", "run", "pause"),
					pick("bad", nil, nil, ""), pick(0, 1), pick(0, 0, 0, 0, 0, 0, 0, 0, 0, 1), pick(0, 3, 7),
					pick(0, 1), pick(0, 0, 1), parked)
				row := one[int](t, store, "select max(id) from millrace_projections")
				owner, since := pick(node.ID, node.ID, "dead", nil), any(nil)
				if owner == nil {
					since = now.Add(-time.Duration(row%10) * time.Second).UnixMicro()
				}
				mustExec(t, store,
					"insert into millrace_leases (id, owner, epoch, checkpoint, free_since) values (?1, ?2, 1, 5, ?3)",
					row, owner, since)
				if parked != 0 {
					mustExec(t, store,
						`insert into millrace_dead_letters (projection, position, stream_id, version, type, error, stack, attempts, first_failed_at, last_failed_at)
						values (?1, 1, 's', 1, 'T', 'bad', 'stack', 5, ?2, 0)`, row, now.Add(-time.Duration(row)*time.Second).UnixMicro())
				}
			}
		}
	}
	return store, node
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
	store, node := mixed(t)
	all := must(store.plane().Projections(testContext(t), engine.ProjectionFilter{}))(t)
	if len(all) != 50*(7+3) ||
		!slices.IsSortedFunc(all, func(a, b engine.ProjectionRow) int { return engine.CompareIDs(a.ID, b.ID) }) {
		t.Fatalf("%d rows, sorted or not", len(all))
	}
	missing := make(map[string]bool)
	for _, id := range must(texts(store,
		"select t.name || '/' || p.name || '/' || p.partition from millrace_projections p join millrace_tenants t on t.id = p.tenant where missing_object"))(t) {
		missing[id] = true
	}
	states := make(map[string]int)
	for _, r := range all {
		if want := stateOfRow(r,
			missing[fmt.Sprintf("%s/%s/%d", r.ID.Tenant, r.ID.Name, r.ID.Partition)]); r.State != want {
			t.Errorf("%s: %+v, want %s", r.State, r, want)
		}
		states[r.State]++
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
		{IDs: []projection.ID{{Tenant: "t3", Name: "p1"}, {Tenant: "t4", Name: "p1"}}, Tenants: []string{"t4", "t5"}},
		{Owner: node.ID}, {Owner: "dead", Parked: true}, {NotOwner: node.ID, States: []string{"elsewhere", "paused"}},
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
	store, node := mixed(t)
	for _, alive := range []bool{true, false} {
		if !alive { // another node owns the file, and the leases of the previous owner are dead
			mustExec(t, store, "update millrace_nodes set id = 'another', started_at = ?1",
				time.Now().Add(-7*time.Second).UnixMicro())
		}
		const patience = 5 * time.Second
		byTenant, notOwned, overdue := []string{"p1", "none"}, 0, 0
		want := engine.Overview{
			Tenants: map[tenancy.State]int{tenancy.Active: 39, tenancy.Paused: 6, tenancy.Archived: 6},
		}
		owned := 0
		for _, r := range must(store.plane().Projections(testContext(t), engine.ProjectionFilter{}))(t) {
			want.Parked += r.Parked
			if !r.OldestParked.IsZero() && (want.OldestParked.IsZero() || r.OldestParked.Before(want.OldestParked)) {
				want.OldestParked, want.OldestParkedIn = r.OldestParked, r.ID
			}
			switch {
			case r.OwnerAlive:
				owned++
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
			if r.OwnerAlive != (alive && r.Owner == node.ID) {
				t.Errorf("%s: %q is alive: %v", r.ID, r.Owner, r.OwnerAlive)
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
			want.Parked == 0 || (owned > 0) != alive {
			t.Errorf("got %+v and %d overdue meanwhile, want %+v", got, late, want)
		}
	}
}

func TestStatusShowsForHowLongALeaseHadNoOwner(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	ensured(t, store, "dead", "free", "held")
	mustExec(t, store, "update millrace_leases set free_since = ?1", time.Now().Add(-time.Minute).UnixMicro())
	first, second := newNode("dead"), newNode("held")
	since := func() (list []time.Duration) {
		t.Helper()
		for _, p := range must(store.plane().Projections(ctx, engine.ProjectionFilter{}))(t) {
			if p.OwnerAlive != (p.State == "elsewhere") || p.OwnerAlive && p.NotOwned != 0 {
				t.Errorf("%+v", p)
			}
			list = append(list, p.NotOwned.Round(time.Minute/2))
		}
		return list
	}
	session := connect(t, store, first)
	claimAll(t, store, first)
	if got, want := since(), []time.Duration{0, time.Minute, time.Minute}; !slices.Equal(got, want) {
		t.Errorf("while the owner lives: %v, want %v", got, want)
	}
	noError(t, session.Close(ctx)) // as if it had been killed, two minutes ago
	long := time.Now().Add(-2 * time.Minute)
	noError(t, os.Chtimes(ownerlock.Name(store.path), long, long))
	if got, want := since(), []time.Duration{2 * time.Minute, time.Minute, time.Minute}; !slices.Equal(got, want) {
		t.Errorf("after the death of the owner: %v, want %v", got, want)
	}
	connect(t, store, second)
	claimAll(t, store, second)
	mustExec(t, store, "update millrace_nodes set started_at = ?1", time.Now().Add(-3*time.Minute).UnixMicro())
	if got, want := since(), []time.Duration{3 * time.Minute, time.Minute, 0}; !slices.Equal(got, want) {
		t.Errorf("after another node took over: %v, want %v", got, want)
	}
}

func TestLeasesThatANodeLeavesHaveNoOwnerFromThenOn(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ensured(t, store, "p")
	node := newNode("p")
	session := connect(t, store, node)
	claimAll(t, store, node)
	mustExec(t, store, "update millrace_nodes set started_at = 1")
	noError(t, session.Deregister(testContext(t)))
	row := must(store.plane().Projections(testContext(t), engine.ProjectionFilter{}))(t)[0]
	if row.OwnerAlive || row.Owner != node.ID || row.State != "not owned" || row.NotOwned <= 0 ||
		row.NotOwned > 2*time.Minute {
		t.Errorf("%+v", row)
	}
	if nodes := must(store.plane().Nodes(testContext(t)))(t); len(nodes) != 0 {
		t.Errorf("a node that was stopped gracefully is listed: %+v", nodes)
	}
}

func TestNodesShowTheOwnerAndWhatItRuns(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	other := openStore(t, store.path, Options{})
	ensured(t, store, "p", "q", "r")
	node := newNode("p", "q")
	node.Tenants = []string{projection.DefaultTenant, "a1", "b"}
	node.Filters = map[string]engine.TenantFilter{"p": engine.NewTenantFilter([]string{"a*", "default"})}
	session := connect(t, store, node)
	connect(t, other, newNode("p")) // stands by
	claimAll(t, store, node)
	list := must(other.plane().Nodes(testContext(t)))(t)
	if len(list) != 1 {
		t.Fatalf("%d nodes", len(list))
	}
	n := list[0]
	if n.ID != node.ID || !n.Alive || n.Draining || n.Leases != 2 || time.Since(n.StartedAt) > time.Minute ||
		n.Silent > time.Minute || time.Since(n.HeartbeatAt) > time.Minute ||
		!n.Knows("a1", "p") || n.Knows("b", "p") || !n.Knows("b", "q") || n.Knows("c", "q") || n.Knows("a1", "r") ||
		n.Summary == nil {
		t.Errorf("%+v", n)
	}
	noError(t, store.port().AnnounceDrain(testContext(t), newNode("p"))) // of a node that stands by
	if n := must(other.plane().Nodes(testContext(t)))(t)[0]; n.Draining {
		t.Errorf("another node drains, and not %+v", n)
	}
	noError(t, store.port().AnnounceDrain(testContext(t), node))
	if n := must(other.plane().Nodes(testContext(t)))(t)[0]; !n.Draining {
		t.Errorf("it drains: %+v", n)
	}
	noError(t, session.Close(testContext(t)))
	if list := must(other.plane().Nodes(testContext(t)))(t); len(list) != 1 || list[0].ID != node.ID || list[0].Alive ||
		list[0].HeartbeatAt.IsZero() {
		t.Errorf("after its end: %+v", list)
	}
}

// A text of a handler must not make heartbeats fail.
func TestSummaryIsWrittenAndShortWhateverItsTexts(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	session := connect(t, store, newNode("p"))
	own := func() *engine.NodeSummary {
		t.Helper()
		session.summary.work.Wait()
		nodes := must(store.plane().Nodes(testContext(t)))(t)
		if len(nodes) != 1 {
			t.Fatalf("%d nodes", len(nodes))
		}
		return nodes[0].Summary
	}
	if got := own(); got == nil || !reflect.DeepEqual(*got, engine.NodeSummary{}) {
		t.Errorf("a new node has the summary %+v", got)
	}
	for _, reason := range []string{"bad", "\x00", "a\xff\xfeb", `\u0000`, strings.Repeat("ä\x00", 1<<20),
		"\"'\n\t\u2028", "{}"} {
		full := engine.NodeSummary{States: map[string]int{"live": 3}}
		for i := range engine.MaxSummarized {
			full.Lagging = append(full.Lagging,
				engine.LaggingProjection{
					ID: projection.ID{Tenant: strings.Repeat("t", 200), Name: fmt.Sprint("p", i)}, Mark: 1 << 62,
					Reason: reason,
				})
		}
		noError(t, session.Heartbeat(testContext(t), &full))
		if got := own(); got == nil || len(got.Lagging) != engine.MaxSummarized ||
			got.Lagging[3].ID != full.Lagging[3].ID || got.States["live"] != 3 {
			t.Errorf("%.20q: read as %+v", reason, got)
		}
		if bytes := one[int](t, store, "select length(cast(summary as blob)) from millrace_nodes"); bytes > 32<<10 {
			t.Errorf("%.20q: %d bytes", reason, bytes)
		}
		mustExec(t, store, "update millrace_nodes set summary = null")
		noError(t, session.Heartbeat(testContext(t), &full))
		if again := own(); again != nil {
			t.Errorf("%.20q: a heartbeat with the same summary wrote it again", reason)
		}
	}
}

// A batch has the writer for as long as its handler works. The owner must not count as dead meanwhile, nor miss
// notices.
func TestHeartbeatDoesNotWaitForTheWriter(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	session := connect(t, store, newNode("p"))
	noError(t, store.writer.take(testContext(t)))
	began := time.Now()
	for i := range 3 {
		noError(t, session.Heartbeat(testContext(t), &engine.NodeSummary{States: map[string]int{"live": i}}))
	}
	if took := time.Since(began); took > summaryTimeout {
		t.Errorf("three heartbeats took %v", took)
	}
	store.writer.give()
	session.summary.work.Wait()
	noError(t, session.Heartbeat(testContext(t), &engine.NodeSummary{States: map[string]int{"live": 7}}))
	session.summary.work.Wait()
	if n := must(store.plane().Nodes(testContext(t)))(t)[0]; n.Summary.States["live"] != 7 {
		t.Errorf("the summary is %+v", n.Summary)
	}
}

package pgstore

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// present connects a node to the store, so that other nodes see it.
func present(t *testing.T, store *Store, node engine.Node) *nodeSession {
	t.Helper()
	connected := must(connect(t, store, node))(t)
	return connected.(*nodeSession)
}

// vanish ends a node's session as the end of its process does, and returns when the server has given up its lock.
func vanish(t *testing.T, store *Store, s *nodeSession) {
	t.Helper()
	if !one[bool](t, store, "select pg_terminate_backend($1, $2)", int32(s.conn.PgConn().PID()), hangs.Milliseconds()) {
		t.Fatal("the session does not end")
	}
}

// expire lets a node's heartbeat run out.
func expire(t *testing.T, store *Store, node engine.Node) {
	t.Helper()
	mustExec(t, store, `update millrace.nodes set heartbeat_at = clock_timestamp() - interval '1 min',
		expires_at = clock_timestamp() - interval '1 s' where id = $1`, node.ID)
}

// listPeers returns what a session sees of the other nodes, in the order of their names, and checks when they beat
// last.
func listPeers(t *testing.T, s *nodeSession) engine.Fleet {
	t.Helper()
	found := must(s.ListPeers(testContext(t)))(t)
	sortFleet(found)
	for i, p := range found.Peers {
		if !p.Beat.Equal(lastHeartbeat(t, s.db, p.ID)) {
			t.Errorf("%s is said to have beat at %v", p.ID, p.Beat)
		}
		found.Peers[i].Beat = time.Time{}
	}
	return found
}

func sortFleet(n engine.Fleet) {
	slices.SortFunc(n.Peers, func(a, b engine.Peer) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(n.Members, func(a, b engine.Member) int { return strings.Compare(a.ID, b.ID) })
}

func lastHeartbeat(t *testing.T, db *database, node string) (at time.Time) {
	t.Helper()
	noError(t, db.pool.QueryRow(testContext(t), "select coalesce(max(heartbeat_at), 'epoch') from "+db.control.quoted+
		".nodes where id = $1", node).Scan(&at))
	return at
}

// markedDead marks a node dead, and reports whether that had an effect.
func markedDead(t *testing.T, by *nodeSession, node engine.Node) bool {
	t.Helper()
	peer := engine.Peer{ID: node.ID, Beat: lastHeartbeat(t, by.db, node.ID)}
	done := must(by.MarkDead(testContext(t), peer))(t)
	return done
}

// heard returns the notices of a session since the last call. It sends a notice of its own: since notices arrive in the
// order of the commits, all earlier ones come before it.
func heard(t *testing.T, s *nodeSession) (notices []engine.Notice) {
	t.Helper()
	ctx, cancel := context.WithTimeout(testContext(t), hangs)
	defer cancel()
	last := engine.Notice{Tenant: uuid.NewString(), Position: engine.UnknownPosition}
	must(s.db.pool.Exec(ctx, "select pg_notify($1, $2)", s.db.control.wakeChannel, last.Tenant))(t)
	for {
		notice := must(s.Next(ctx))(t)
		if notice == last {
			return notices
		}
		notices = append(notices, notice)
	}
}

// nodesMove is the notice that nodes come and go.
var nodesMove = []engine.Notice{{Control: true, Nodes: true}}

// ensured makes the projections of the default tenant and returns the rows of their leases, in the order of the names.
func ensured(t *testing.T, store *Store, names ...string) []int32 {
	t.Helper()
	must(store.plane().Ensure(testContext(t), projectionsOf([]string{projection.DefaultTenant}, names...)))(t)
	rows := make([]int32, len(names))
	for i, name := range names {
		rows[i] = one[int32](t, store, "select id from millrace.projections where tenant = $1 and name = $2",
			projection.DefaultTenant, name)
	}
	return rows
}

// claimed claims as the supervisor does.
func claimed(t *testing.T, store *Store, node engine.Node, trustHeartbeats bool, rows ...int32) []engine.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(testContext(t), hangs)
	defer cancel()
	leases := must(store.port().Claim(ctx, node, rows, trustHeartbeats))(t)
	slices.SortFunc(leases, func(a, b engine.Lease) int { return int(a.Row - b.Row) })
	return leases
}

func TestListPeersReturnsTheOtherNodesThatAreAlive(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	self, plain, special, leaving, silent := aNode(), aNode(), aNode(), aNode(), aNode()
	special.Projections, special.Tenants = []string{"q", `it's "r"`}, []string{projection.DefaultTenant, "b,{}"}
	special.Filters = map[string]engine.TenantFilter{
		"q": engine.NewTenantFilter([]string{`b\*`, "x,{}*"}), `it's "r"`: engine.NewTenantFilter([]string{"it's"}),
	}
	watcher := present(t, store, self)
	beating := make(map[string]*nodeSession)
	for _, node := range []engine.Node{plain, special, leaving, silent} {
		beating[node.ID] = present(t, store, node)
	}
	expire(t, store, silent)
	heard(t, watcher)
	noError(t, store.port().AnnounceDrain(testContext(t), leaving))
	if notices := heard(t, watcher); !slices.Equal(notices, nodesMove) {
		t.Errorf("the drain of a node is notified as %v", notices)
	}
	// sees checks that these nodes are seen, all with their locks.
	sees := func(s *nodeSession, members, others []engine.Node) {
		t.Helper()
		var want engine.Fleet
		for _, n := range append(slices.Clone(members), others...) {
			want.Peers = append(want.Peers, engine.Peer{ID: n.ID, Locked: true})
		}
		for _, n := range members {
			want.Members = append(want.Members, engine.Member{ID: n.ID,
				Projections: n.Projections, Tenants: nonNil(n.Tenants), Filters: n.Filters})
		}
		sortFleet(want)
		if found := listPeers(t, s); !reflect.DeepEqual(found, want) {
			t.Errorf("seen are %+v, want %+v", found, want)
		}
	}
	sees(watcher, []engine.Node{plain, special}, []engine.Node{leaving})
	sees(watcher, []engine.Node{plain, special}, []engine.Node{leaving}) // without reading again what they registered
	sees(beating[special.ID], []engine.Node{self, plain}, []engine.Node{leaving})
	sees(beating[leaving.ID], []engine.Node{self, plain, special}, nil)
	noError(t, errors.Join(beating[silent.ID].Heartbeat(testContext(t), &engine.NodeSummary{}),
		beating[plain.ID].Deregister(testContext(t))))
	sees(watcher, []engine.Node{special, silent}, []engine.Node{leaving})
}

func TestListPeersShowsTheLostLockOfANodeWhoseHeartbeatHolds(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	watcher := present(t, store, aNode())
	for name, end := range map[string]func(s *nodeSession){
		"its backend is terminated": func(s *nodeSession) { vanish(t, store, s) },
		"its connection is cut": func(s *nodeSession) {
			_ = s.conn.PgConn().Conn().Close()
			ctx, cancel := context.WithTimeout(testContext(t), hangs)
			defer cancel()
			for one[bool](t, store, "select exists (select from pg_stat_activity where pid = $1)",
				int32(s.conn.PgConn().PID())) && ctx.Err() == nil {
				pause(ctx, time.Millisecond)
			}
		},
	} {
		node := aNode()
		s := present(t, store, node)
		before := listPeers(t, watcher)
		end(s)
		after := listPeers(t, watcher)
		if !slices.Contains(before.Peers, engine.Peer{ID: node.ID, Locked: true}) {
			t.Errorf("%s: before that the peers are %v", name, before.Peers)
		}
		if !slices.Contains(after.Peers, engine.Peer{ID: node.ID}) || len(after.Members) != len(before.Members) {
			t.Errorf("%s: after that the neighbours are %+v", name, after)
		}
		if !markedDead(t, watcher, node) {
			t.Errorf("%s: the node is not marked dead", name)
		}
	}
}

// Keys may be negative. A lock with a node's key may be of another kind, schema or database.
func TestOnlyTheNodesOwnSessionLockCounts(t *testing.T) {
	t.Parallel()
	store, elsewhere := newStore(t), newStore(t)
	beside := migrated(t, openStore(t, store.pool.Config().ConnString(), Options{Schema: "beside"}))
	for _, negative := range []bool{false, true} {
		watcher := present(t, store, aNode())
		node := aNode()
		key := func() int64 { return (&nodeSession{db: store.database, node: node}).lockKey() }
		for (key() < 0) != negative {
			node = aNode()
		}
		vanish(t, store, present(t, store, node))
		imitations := []*nodeSession{present(t, beside, node), present(t, elsewhere, node)}
		apart := strange(t, store)
		must(apart.Exec(testContext(t), "select pg_advisory_lock($1, $2)", int32(key()>>32), int32(key())))(t)
		for i, s := range append(imitations, present(t, beside, aNode())) {
			wanted := []int{1, 0, 1}[i] // the nodes of the other schema see each other
			if found := listPeers(t, s); len(found.Peers) < wanted ||
				slices.ContainsFunc(found.Peers, func(p engine.Peer) bool { return p.ID == watcher.node.ID }) {
				t.Errorf("session %d sees %v", i, found.Peers)
			}
		}
		if found := listPeers(t, watcher); !slices.Contains(found.Peers, engine.Peer{ID: node.ID}) {
			t.Errorf("negative %v: of %s is seen %v", negative, node.ID, found.Peers)
		}
		// The control: with its own lock the node is neither listed without it nor marked dead.
		own := lingering(t, store, node)
		if found := listPeers(t, watcher); !slices.Contains(found.Peers, engine.Peer{ID: node.ID, Locked: true}) ||
			markedDead(t, watcher, node) {
			t.Errorf("negative %v: with the lock of %s are seen %v, or it is marked dead", negative, node.ID,
				found.Peers)
		}
		must(own.Exec(testContext(t), "select pg_advisory_unlock($1)", key()))(t)
		if !markedDead(t, watcher, node) {
			t.Errorf("negative %v: something else is taken for the lock of %s", negative, node.ID)
		}
		if found := listPeers(t, present(t, beside, aNode())); !slices.Contains(found.Peers,
			engine.Peer{ID: node.ID, Locked: true}) {
			t.Errorf("marking a node dead in one schema affected another schema: %v", found.Peers)
		}
	}
}

func TestNodeIsMarkedDeadOnceAndOnlyWithoutItsLock(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	node := aNode()
	watcher, listener, dying := present(t, store, aNode()), present(t, store, aNode()), present(t, store, node)
	// tries checks an attempt to mark the node dead, and its notification.
	tries := func(when string, want bool) {
		t.Helper()
		done, notified := markedDead(t, watcher, node), heard(t, listener)
		if done != want || slices.Equal(notified, nodesMove) != want || !want && len(notified) > 0 {
			t.Errorf("%s: marked dead %v, notified %v", when, done, notified)
		}
	}
	tries("while it lives", false)
	vanish(t, store, dying)
	dying = present(t, store, node)
	tries("when it is back", false)
	seen := engine.Peer{ID: node.ID, Beat: lastHeartbeat(t, store.database, node.ID)}
	vanish(t, store, dying)
	mustExec(t, store, "update millrace.nodes set heartbeat_at = clock_timestamp() where id = $1", node.ID)
	if done, err := watcher.MarkDead(testContext(t), seen); done || err != nil || len(heard(t, listener)) > 0 {
		t.Errorf("after a later heartbeat: marked dead %v, %v", done, err)
	}
	tries("when its session ended", true)
	tries("for the second time", false)
	dying = present(t, store, node)
	tries("when it is back after that", false)
	vanish(t, store, dying)
	expire(t, store, node)
	tries("when its heartbeat ran out", false)
}

func TestNodesAreListedWithTheirLeases(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	silent, leaving, idle := aNode(), aNode(), aNode()
	for _, node := range []engine.Node{silent, leaving, idle} {
		present(t, store, node)
	}
	rows := ensured(t, store, "a", "b", "c")
	claimed(t, store, silent, true, rows[:2]...)
	claimed(t, store, leaving, true, rows[2])
	expire(t, store, silent)
	noError(t, store.port().AnnounceDrain(testContext(t), leaving))
	nodes, err := store.plane().Nodes(testContext(t))
	if err != nil || len(nodes) != 3 {
		t.Fatal(nodes, err)
	}
	for i, want := range []engine.NodeRow{{Member: silent.Member(), Leases: 2, Silent: time.Minute},
		{Member: leaving.Member(), Alive: true, Draining: true, Leases: 1}, {Member: idle.Member(), Alive: true}} {
		n := nodes[i]
		if n.ID != want.ID || n.Alive != want.Alive || n.Draining != want.Draining || n.Leases != want.Leases ||
			!slices.Equal(n.Projections, silent.Projections) ||
			n.Silent < want.Silent || n.Silent > want.Silent+hangs {
			t.Errorf("%+v, want %+v", n, want)
		}
	}
}

package main

import (
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
)

// nodeID is what a node says of itself first.
const nodeID = `node \w{8} \(([-\w]{36})\)`

// owners counts the leases of each node; "" are those that no node holds.
func owners(t *testing.T, pool *pgxpool.Pool) map[string]int64 {
	t.Helper()
	return counts(t, pool, "select coalesce(owner::text, ''), count(*) from demo_millrace.leases group by 1")
}

// settledOn waits until each of the projections is one of these nodes'.
func settledOn(t *testing.T, pool *pgxpool.Pool, ids ...string) (owning map[string]int64) {
	t.Helper()
	eventually(t, "all projections are run by "+strings.Join(ids, ", "), func() bool {
		owning = owners(t, pool)
		var n int64
		for _, id := range ids {
			n += owning[id]
		}
		return n == int64(len(readModels))
	})
	return owning
}

func TestKilledNodeIsReplacedAndNothingIsLost(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	// They find an empty database, all at once.
	nodes := make(map[string]*process)
	var begun []*process
	for range 3 {
		begun = append(begun, start(t, "node", "-database-url", dsn, "-lease-time", "2s", "-heartbeat", "200ms"))
	}
	for _, p := range begun {
		nodes[p.says(nodeID)] = p
	}
	if len(nodes) != len(begun) {
		t.Fatalf("the nodes are %v, want three that differ", slices.Collect(maps.Keys(nodes)))
	}
	load := start(t, "load", "-database-url", dsn, "-events", "3000", "-rate", "500")
	owning := settledOn(t, pool, slices.Collect(maps.Keys(nodes))...)
	eventually(t, "events are applied", func() bool {
		return counts(t, pool, "select 'applied', coalesce(sum(n), 0)::bigint from demo.streams")["applied"] > 100
	})

	victim := slices.MaxFunc(slices.Collect(maps.Keys(owning)), func(a, b string) int { return int(owning[a] - owning[b]) })
	nodes[victim].signal(syscall.SIGKILL)
	nodes[victim].ends(-1)
	delete(nodes, victim)
	check := start(t, "check", "-database-url", dsn)
	settledOn(t, pool, slices.Collect(maps.Keys(nodes))...)
	eventually(t, "a node says that it took over", func() bool {
		for _, p := range nodes {
			if strings.Contains(p.output(), "took over from "+short(victim)+": ") {
				return true
			}
		}
		return false
	})

	load.ends(0)
	load.says("appended 3000 of 3000 events")
	check.ends(0)
	again := start(t, "check", "-database-url", dsn)
	again.ends(0)
	again.says("^3000 events in ")
	again.says("verified: every event was applied exactly once\n$")
	for _, p := range nodes {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range nodes {
		p.ends(0)
	}
}

func TestInterruptedNodeHandsItsProjectionsOver(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	// The leases last for so long that only who gives them back makes room for the other.
	node := func() (*process, string) {
		p := start(t, "node", "-database-url", dsn, "-lease-time", "30m")
		return p, p.says(nodeID)
	}
	first, firstID := node()
	first.says("runs 4 of 4 now: events_by_role, events_by_type, payments, streams\n")
	second, secondID := node()

	first.signal(syscall.SIGINT)
	first.ends(0)
	first.says("stopping\n")
	first.says("(gave up|went to [0-9a-f]+): ")
	first.says("runs nothing now\n")
	first.says("stopped in order\n$")
	settledOn(t, pool, secondID)
	if n := owners(t, pool)[firstID]; n != 0 {
		t.Errorf("the first node still has %d leases", n)
	}
	second.says("runs 4 of 4 now")

	// Its tables are not pulled away from under a node.
	clean := start(t, "clean", "-database-url", dsn)
	clean.ends(1)
	clean.says("node " + short(secondID) + " runs: interrupt it first")
	second.signal(syscall.SIGTERM)
	second.ends(0)
	clean = start(t, "clean", "-database-url", dsn)
	clean.ends(0)
	clean.says("^removed the schemas demo, demo_millrace, demo_millrace_default\n$")
	if left := program.Schemas(t, pool); left != "" {
		t.Errorf("schemas %s are left", left)
	}
}

func TestSecondInterruptEndsANodeAtOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	node := start(t, "node", "-database-url", dsn)
	id := node.says(nodeID)
	settledOn(t, pool, id)
	// A handler that waits for a lock keeps it from stopping.
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "lock table demo.streams in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	start(t, "load", "-database-url", dsn, "-events", "100", "-rate", "0").ends(0)
	eventually(t, "a handler waits", func() bool {
		return counts(t, pool, "select 'waiting', count(*) from pg_catalog.pg_locks where not granted")["waiting"] > 0
	})
	node.signal(syscall.SIGINT)
	node.says("stopping\n")
	node.signal(syscall.SIGINT)
	node.ends(130)
	if strings.Contains(node.output(), "stopped in order") {
		t.Error("it says that it stopped in order")
	}
	if owners(t, pool)[id] == 0 {
		t.Error("it has given its leases back, so it did not end at once")
	}
}

package main

import (
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/internal/report"
)

// nodeID matches the line in which a node prints its id.
const nodeID = `node \w{8} \(([-\w]{36})\)`

// owners returns the number of leases of each node; those without an owner are under "".
func owners(t *testing.T, pool *pgxpool.Pool) map[string]int64 {
	t.Helper()
	return counts(t, pool, "select coalesce(owner::text, ''), count(*) from demo_millrace.leases group by 1")
}

// counts returns the rows of a query.
func counts(t *testing.T, pool *pgxpool.Pool, sql string) map[string]int64 {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	got := make(map[string]int64)
	var key string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&key, &n}, func() error { got[key] = n; return nil }); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

// ownedBy waits until these nodes own all projections.
func ownedBy(t *testing.T, pool *pgxpool.Pool, ids ...string) (owning map[string]int64) {
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
	// They find an empty database at the same time.
	nodes := make(map[string]*process)
	var begun []*process
	for range 3 {
		begun = append(begun, start(t, "node", "-database-url", dsn, "-lease-time", "2s"))
	}
	for _, p := range begun {
		nodes[p.awaitOutput(nodeID)] = p
	}
	if len(nodes) != len(begun) {
		t.Fatalf("the nodes are %v, want three that differ", slices.Collect(maps.Keys(nodes)))
	}
	load := start(t, "load", "-database-url", dsn, "-events", "3000", "-rate", "500")
	owning := ownedBy(t, pool, slices.Collect(maps.Keys(nodes))...)
	eventually(t, "events are applied", func() bool {
		return counts(t, pool, "select 'applied', coalesce(sum(n), 0)::bigint from demo.streams")["applied"] > 100
	})

	victim := slices.MaxFunc(slices.Collect(maps.Keys(owning)),
		func(a, b string) int { return int(owning[a] - owning[b]) })
	nodes[victim].signal(syscall.SIGKILL)
	nodes[victim].awaitExit(-1)
	delete(nodes, victim)
	check := start(t, "check", "-database-url", dsn)
	ownedBy(t, pool, slices.Collect(maps.Keys(nodes))...)
	eventually(t, "a node prints that it took over", func() bool {
		for _, p := range nodes {
			if strings.Contains(p.output(), "took over from "+report.Short(victim)+": ") {
				return true
			}
		}
		return false
	})

	load.awaitExit(0)
	load.awaitOutput("appended 3000 of 3000 events")
	check.awaitExit(0)
	again := start(t, "check", "-database-url", dsn)
	again.awaitExit(0)
	again.awaitOutput("^3000 events in ")
	again.awaitOutput("verified: every event was applied exactly once\n$")
	for _, p := range nodes {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range nodes {
		p.awaitExit(0)
	}
}

func TestInterruptedNodeReleasesItsProjections(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	// The leases are so long that the other node gets them only if the first releases them.
	node := func() (*process, string) {
		p := start(t, "node", "-database-url", dsn, "-lease-time", "30m")
		return p, p.awaitOutput(nodeID)
	}
	first, firstID := node()
	first.awaitOutput("runs 4 of 4 now: events_by_role, events_by_type, payments, streams\n")
	second, secondID := node()

	first.signal(syscall.SIGINT)
	first.awaitExit(0)
	first.awaitOutput("stopping\n")
	first.awaitOutput("(released|taken over by [0-9a-f]+): ")
	first.awaitOutput("runs nothing now\n")
	first.awaitOutput("stopped gracefully\n$")
	ownedBy(t, pool, secondID)
	if n := owners(t, pool)[firstID]; n != 0 {
		t.Errorf("the first node still has %d leases", n)
	}
	second.awaitOutput("runs 4 of 4 now")

	// The tables of a running node are not removed.
	clean := start(t, "clean", "-database-url", dsn)
	clean.awaitExit(1)
	clean.awaitOutput("node " + report.Short(secondID) + " is running: interrupt it first")
	second.signal(syscall.SIGTERM)
	second.awaitExit(0)
	clean = start(t, "clean", "-database-url", dsn)
	clean.awaitExit(0)
	clean.awaitOutput("^removed the schemas demo, demo_millrace, demo_millrace_default\n$")
	if left := program.Schemas(t, pool); left != "" {
		t.Errorf("schemas %s are left", left)
	}
}

func TestSecondInterruptEndsANodeAtOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	node := start(t, "node", "-database-url", dsn)
	id := node.awaitOutput(nodeID)
	ownedBy(t, pool, id)
	// A handler that waits for a lock delays the stop.
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "lock table demo.streams in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	start(t, "load", "-database-url", dsn, "-events", "100", "-rate", "0").awaitExit(0)
	eventually(t, "a handler waits", func() bool {
		return counts(t, pool, "select 'waiting', count(*) from pg_catalog.pg_locks where not granted")["waiting"] > 0
	})
	node.signal(syscall.SIGINT)
	node.awaitOutput("stopping\n")
	node.signal(syscall.SIGINT)
	node.awaitExit(130)
	if strings.Contains(node.output(), "stopped gracefully") {
		t.Error("it printed that it stopped gracefully")
	}
	if owners(t, pool)[id] == 0 {
		t.Error("it released its leases, so it did not end at once")
	}
}

package pgstore

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
)

// The planner does not know how many projections a statement inserts, nor how many tenants are active before the table
// was analyzed. It compared each projection with all others, and then each with all tenants: 100,000 projections of
// 5,000 tenants took 25 s.
func TestRegisteringManyProjectionsComparesNoPairs(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	const many, tenants = 1000, 2000 // fewer tenants are read faster as a whole, once the table was analyzed
	mustExec(t, store,
		fmt.Sprintf("insert into millrace.tenants (tenant, schema_name, version) select 't'||n, 's'||n, 1 from generate_series(1, %d) n", tenants))
	var projections []engine.NewProjection
	for i := range many {
		projections = append(projections, engine.NewProjection{Tenant: fmt.Sprint("t", i%tenants+1),
			Name: fmt.Sprint("p", i)})
	}
	read := func(statement string) {
		args := []any{newRows(t, projections)}
		if rows := rowsOfPlan(t, store, statement, args); rows > 50*many {
			t.Errorf("%d rows pass through the plan for %d projections:\n%s", rows, many,
				explain(t, store, store.control.sql(statement), args...))
		}
	}
	for range 2 { // autovacuum may analyze the table at any time
		read("missing_projections")
		read("insert_projections")
		mustExec(t, store, "analyze millrace.tenants")
	}
	if _, err := store.plane().Ensure(testContext(t), projections); err != nil {
		t.Fatal(err)
	}
	if n := one[int](t, store, "select count(*) from millrace.leases"); n != many {
		t.Errorf("%d leases, want %d", n, many)
	}
	read("missing_projections")
	mustExec(t, store, "delete from millrace.leases")
	read("insert_leases")
	for i := range projections {
		projections[i].Name = "next-" + projections[i].Name
	}
	read("missing_projections")
	read("insert_projections")
}

// newRows returns the argument with which projections without partitions are listed and inserted.
func newRows(t *testing.T, projections []engine.NewProjection) string {
	t.Helper()
	rows := make([]map[string]any, len(projections))
	for i, p := range projections {
		rows[i] = map[string]any{"place": i, "tenant": p.Tenant, "name": p.Name, "partition": 0, "partitions": 1,
			"from": 0, "to": 1 << 28,
			"token": uuid.NewString(), "checkpoint": 0}
	}
	return string(must(json.Marshal(rows))(t))
}

// rowsOfPlan executes a statement, and returns how many rows all nodes of its plan returned or removed in all their
// loops.
func rowsOfPlan(t *testing.T, store *Store, statement string, args []any) (total int) {
	t.Helper()
	tx := must(store.pool.Begin(testContext(t)))(t)
	defer func() { _ = tx.Rollback(testContext(t)) }()
	rows := must(tx.Query(testContext(t), "explain (analyze, costs off, timing off, summary off) "+
		store.control.sql(statement), args...))(t)
	lines := must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	node, removed := regexp.MustCompile(`actual rows=([0-9]+)(?:\.[0-9]+)? loops=([0-9]+)`),
		regexp.MustCompile("Rows Removed by .*: ([0-9]+)")
	number := func(text string) int { return must(strconv.Atoi(text))(t) }
	loops := 0
	for _, line := range lines {
		if found := node.FindStringSubmatch(line); found != nil {
			loops = number(found[2])
			total += number(found[1]) * loops
		} else if found := removed.FindStringSubmatch(line); found != nil {
			total += number(found[1]) * loops
		}
	}
	return total
}

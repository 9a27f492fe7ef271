package pgstore

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
)

// The planner does not know how many projections a statement inserts. It compared each with all others: 1,000,000 pairs, twice.
func TestRegisteringManyProjectionsComparesNoPairs(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	const many = 300
	var projections []engine.NewProjection
	for i := range many {
		projections = append(projections, engine.NewProjection{Tenant: "default", Name: fmt.Sprint("p", i)})
	}
	plan := explain(t, store, store.control.sql("ensure_projections"), rowArgs(projections, begins{})...)
	tx := must(store.pool.Begin(testContext(t)))(t)
	defer func() { _ = tx.Rollback(testContext(t)) }()
	rows := must(tx.Query(testContext(t), "explain (analyze, costs off, timing off, summary off) "+store.control.sql("ensure_projections"), rowArgs(projections, begins{})...))(t)
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile("Rows Removed by Join Filter: ([0-9]+)").FindStringSubmatch(line); found != nil {
			if n, _ := strconv.Atoi(found[1]); n > 10*many {
				t.Errorf("%s\n%s", line, plan)
			}
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

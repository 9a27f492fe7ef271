package pgstore

import (
	"math"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/projection"
)

func TestTailScansNoEvents(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustExec(t, store, `insert into millrace_default.events (stream_id, stream_version, type, body)
		select 's' || n, v, 'T' || n % 10, '{"a": 1}' from generate_series(1, 5) v, generate_series(1, 20000) n`)
	setCheckpoint(t, store, projection.DefaultTenant, 90_000)
	types := []string{"T1", "T2"}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			mustExec(t, store, "vacuum analyze millrace_default.events")
		}
		for name, s := range map[string]struct {
			sql  string
			args []any
		}{
			"tail at the end":        {store.tenant.sql("read_tail"), []any{99_990, maxPosition, tailEvents}},
			"tail from the middle":   {store.tenant.sql("read_tail"), []any{50_000, maxPosition, tailEvents}},
			"tail from the first on": {store.tenant.sql("read_tail"), []any{0, int64(math.MaxInt64), tailEvents}},
			"range":                  {store.tenant.sql("read_range"), []any{50_000, 99_000, 500, types}},
			"range from the first":   {store.tenant.sql("read_range"), []any{0, 100_000, 500, types}},
			"head":                   {store.tenant.sql("head"), nil},
			"start":                  {store.tenant.sql("tail_start"), []any{projection.DefaultTenant}},
		} {
			plan := explain(t, store, s.sql, s.args...)
			// Where the index is read from the first event on, the scan is only hidden.
			hidden := len(s.args) > 2 && !strings.Contains(plan, "Index Cond: ((global_seq > ")
			if strings.Contains(plan, "Seq Scan on events") || !strings.Contains(plan, "events_pkey") || hidden {
				t.Errorf("%s, analyzed %v:\n%s", name, analyzed, plan)
			}
		}
	}
	// The control: a scan would be seen.
	if plan := explain(t, store, "select max(stream_version) from millrace_default.events"); !strings.Contains(plan, "Seq Scan on events") {
		t.Errorf("the control is planned as\n%s", plan)
	}
}

package pgstore

import (
	"math"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
)

// explain returns the plan of a statement as it is planned with these arguments.
func explain(t *testing.T, store *Store, sql string, args ...any) string {
	t.Helper()
	rows := must(store.pool.Query(testContext(t), "explain (costs off) "+sql, append([]any{pgx.QueryExecModeExec}, args...)...))(t)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(lines, "\n")
}

func TestNoStatementOnATenantScansATable(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	for _, table := range []string{"streams", "events", "append_keys", "append_results"} {
		// Otherwise the server may analyse at any time.
		mustExec(t, store, "alter table millrace_default."+table+" set (autovacuum_enabled = off)")
	}
	mustExec(t, store, `insert into millrace_default.streams select 's' || n, 5 from generate_series(1, 20000) n`)
	mustExec(t, store, `insert into millrace_default.events (stream_id, stream_version, type, body)
		select 's' || n, v, 'T' || n % 10, '{"a": 1}' from generate_series(1, 5) v, generate_series(1, 20000) n`)
	mustExec(t, store, `insert into millrace_default.append_keys select 'k' || n, 's' || n from generate_series(1, 20000) n`)
	mustExec(t, store, `insert into millrace_default.append_results select 'k' || n, 1, 5 from generate_series(1, 20000) n`)

	call := func(expected event.Expected, expire bool) (string, []any) {
		a, err := store.tenant.newAppend("s77", expected, someEvents(3))
		a.expire = expire
		if err != nil {
			t.Fatal(err)
		}
		text, args := store.tenant.appendStatement(a)
		return text, args
	}
	type statement struct {
		name, sql string
		args      []any
		// ordered statements must read an index in its order: a sort would take all that is left, for every page. Of a
		// stream little is left, so that a sort will do where the table was never analysed.
		ordered, orderedAnalyzed bool
	}
	types := []string{"T1", "T2"}
	statements := []statement{
		{"tail", store.tenant.sql("read_tail"), []any{50000, int64(math.MaxInt64), 500}, true, true},
		{"range", store.tenant.sql("read_range"), []any{50000, 99000, 500, types}, true, true},
		{"stream", store.tenant.sql("read_stream"), []any{"s77", 2, 500, 0}, false, true},
		{"types of a stream", store.tenant.sql("read_stream_types"), []any{"s77", 2, 500, 0, types}, false, true},
		{"head", store.tenant.sql("head"), nil, true, true},
		{"version", store.tenant.sql("stream_version"), []any{"s77"}, true, true},
		{"first result", store.tenant.sql("first_append"), []any{"k77"}, false, false},
	}
	for _, expected := range []event.Expected{event.Any, event.NoStream, event.Exact(5), event.Any.WithKey("k"), event.NoStream.WithKey("k"), event.Exact(5).WithKey("k")} {
		text, args := call(expected, false)
		key, keyed := expected.Key()
		statements = append(statements, statement{"append " + expected.String() + " " + key, text, args, false, false})
		if keyed {
			text, args := call(expected, true)
			statements = append(statements, statement{"append " + expected.String() + " " + key + " and expire", text, args, false, false})
			if plan := explain(t, store, text, args...); !strings.Contains(plan, "append_keys_created_at_idx") {
				t.Errorf("old keys are looked for by\n%s", plan)
			}
		}
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			for _, table := range []string{"streams", "events", "append_keys", "append_results"} {
				mustExec(t, store, "vacuum analyze millrace_default."+table)
			}
		}
		for _, s := range statements {
			plan := explain(t, store, s.sql, s.args...)
			if strings.Contains(plan, "Seq Scan") || (s.ordered || s.orderedAnalyzed && analyzed) && strings.Contains(plan, "Sort") {
				t.Errorf("%s, analyzed %v:\n%s", s.name, analyzed, plan)
			}
		}
	}
	// Control: a scan would be seen.
	if plan := explain(t, store, "select count(*) from millrace_default.events where body = $1::jsonb", "1"); !strings.Contains(plan, "Seq Scan") {
		t.Errorf("the control is planned as\n%s", plan)
	}
}

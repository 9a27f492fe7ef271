package pgstore

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
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
		// ordered statements must read an index in its order: for every page, a sort would read the whole rest of the
		// table. The rest of a stream is small, so a sort is accepted there if the table was never analysed.
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
			// A plan that reads the index from the first event on is as slow as a table scan.
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

// The rows that a replay of one dead letter reads must not grow with the number of parked ones.
func TestReplayOfOneDeadLetterReadsNoOthers(t *testing.T) {
	t.Parallel()
	const letters = 100_000
	d := newDrawer(t, 1)
	mustExec(t, d.store, `insert into millrace.dead_letters (projection_id, position, stream_id, stream_version, type, error, stack, attempts, replays, first_failed_at, last_failed_at)
		select $1, n, 's' || n % 1000, n, 'T', 'bad', '', 5, n % 7, now(), now() - make_interval(secs => $2 - n) from generate_series(4, $2 + 3) n`, d.lease.Row, letters)
	mustExec(t, d.store, "insert into millrace.parked_streams (projection_id, stream_id) select $1, 'other' || n from generate_series(1, 1000) n", d.lease.Row)
	policy := projection.ReplayPolicy{Interval: time.Hour, MaxReplays: 5, Factor: 1, Cap: time.Hour}
	l, c := d.lease, d.store.control
	last := one[int64](t, d.store, "select id from millrace.dead_letters where position = $1", letters)
	var replay, discard, other int64
	for kind, command := range map[string]*int64{"replay": &replay, "discard": &discard} {
		*command = one[int64](t, d.store, "insert into millrace.commands (projection_id, kind, dead_letter_ids, max_events) values ($1, $2, array[$3::bigint], 1) returning id", l.Row, kind, last)
	}
	other = one[int64](t, d.store, "insert into millrace.commands (projection_id, kind, error, max_events) values ($1, 'replay', 'no such error', 1) returning id", l.Row)
	statements := map[string]struct {
		sql  string
		args []any
	}{
		"next_due":     {c.sql("next_due_replay"), []any{l.Row, policy.MaxReplays, 3600.0, 1.0, 3600.0, ""}},
		"begin_replay": {c.sql("begin_replay"), []any{l.Row, l.Owner, l.Epoch, replay, 0}},
		"discard":      {c.sql("discard_dead_letters"), []any{l.Row, l.Owner, l.Epoch, discard}},
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			mustExec(t, d.store, "vacuum analyze millrace.dead_letters, millrace.parked_streams, millrace.commands")
		}
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			for name, s := range statements {
				read := readBy(t, d.store, "set local plan_cache_mode = "+mode, func(tx pgx.Tx) error {
					tag, err := tx.Exec(testContext(t), s.sql, s.args...)
					if tag.RowsAffected() != 1 {
						t.Errorf("%s: %d rows", name, tag.RowsAffected())
					}
					return err
				})["dead_letters"]
				if read.Scans > 0 || read.Rows > 50 {
					t.Errorf("%s, analyzed %v, %s: %+v\n%s", name, analyzed, mode, read, explain(t, d.store, s.sql, s.args...))
				}
			}
		}
	}
	// The control: a replay by a part of the error reads them all.
	if read := readBy(t, d.store, "select", func(tx pgx.Tx) error {
		_, err := tx.Exec(testContext(t), c.sql("begin_replay"), l.Row, l.Owner, l.Epoch, other, 0)
		return err
	}); read["dead_letters"].Rows < letters {
		t.Errorf("the control reads %+v", read)
	}
	var took []time.Duration
	for range 50 {
		begin := time.Now()
		if scheduled, _, err := d.port().ScheduleReplay(testContext(t), l, policy); err != nil || scheduled {
			t.Fatal(scheduled, err) // since commands are open
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	t.Logf("with %d letters a look takes %v, at most %v", letters, took[len(took)/2], took[len(took)-1])
}

// The index finds the same dead letter as a scan of all, for every policy.
func TestAutomaticReplaysTakeTheDeadLetterThatIsDueFirst(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 1)
	const all = `select coalesce((select d.id from millrace.dead_letters d
		 where d.projection_id = $1 and d.state in ('parked', 'replaying') and not d.blocked_by_stream and d.replays < $2 and strpos(d.error, $6::text) > 0
		   and (not exists (select from millrace.parked_streams s where s.projection_id = $1 and s.stream_id = d.stream_id)
		        or d.position = (select min(e.position) from millrace.dead_letters e where e.projection_id = $1 and e.stream_id = d.stream_id and e.state in ('parked', 'replaying')))
		 order by d.last_failed_at + make_interval(secs => least($3::float8 * power($4::float8, d.replays), $5::float8)), d.id limit 1), 0)`
	found := 0
	for round := range 60 {
		mustExec(t, d.store, "truncate millrace.dead_letters, millrace.parked_streams")
		mustExec(t, d.store, `insert into millrace.dead_letters (projection_id, position, stream_id, stream_version, type, blocked_by_stream, state, error, stack, attempts, replays, first_failed_at, last_failed_at)
			select $1, n, 's' || (random() * 5)::int, n, 'T', random() < 0.3, (array['parked', 'parked', 'replaying', 'resolved', 'discarded'])[1 + floor(random() * 5)],
			       (array['bad', 'worse'])[1 + floor(random() * 2)], '', 5, floor(random() * 6), now(), now() - make_interval(secs => random() * 600) from generate_series(1, $2) n`, d.lease.Row, 1+round)
		mustExec(t, d.store, "insert into millrace.parked_streams (projection_id, stream_id) select $1, 's' || n from generate_series(1, 3) n", d.lease.Row)
		for _, policy := range [][]any{{5, 60.0, 2.0, 300.0, ""}, {3, 60.0, 1.0, 60.0, "worse"}, {math.MaxInt32, 10.0, 3.0, 3600.0, "bad"}} {
			args := append([]any{d.lease.Row}, policy...)
			want := one[int64](t, d.store, all, args...)
			got := one[int64](t, d.store, "select coalesce((select id from ("+d.store.control.sql("next_due_replay")+") x), 0)", args...)
			if got != want {
				t.Errorf("round %d, policy %v: letter %d is due first, want %d", round, policy, got, want)
			}
			if want != 0 {
				found++
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d times there was one", found)
	}
}

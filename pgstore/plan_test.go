package pgstore

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/projection"
)

// explain returns the plan of a statement as it is planned with these arguments.
func explain(t *testing.T, store *Store, sql string, args ...any) string {
	t.Helper()
	rows := must(store.pool.Query(testContext(t), "explain (costs off) "+
		sql, append([]any{pgx.QueryExecModeExec}, args...)...))(t)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(lines, "\n")
}

// The rows that a replay of one dead letter reads must not grow with the number of parked ones.
func TestReplayOfOneDeadLetterReadsNoOthers(t *testing.T) {
	t.Parallel()
	const letters = 100_000
	d := newDrawer(t, 1)
	mustExec(t, d.store,
		`insert into millrace.dead_letters (projection_id, position, stream_id, stream_version, type, error, stack, attempts, replays, first_failed_at, last_failed_at)
		select $1, n, 's' || n % 1000, n, 'T', 'bad', '', 5, n % 7, now(), now() - make_interval(secs => $2 - n) from generate_series(4, $2 + 3) n`, d.lease.Row, letters)
	mustExec(t, d.store,
		"insert into millrace.parked_streams (projection_id, stream_id) select $1, 'other' || n from generate_series(1, 1000) n", d.lease.Row)
	policy := projection.ReplayPolicy{Interval: time.Hour, MaxReplays: 5, Factor: 1, Cap: time.Hour}
	l, c := d.lease, d.store.control
	last := one[int64](t, d.store, "select id from millrace.dead_letters where position = $1", letters)
	var replay, discard, other int64
	for kind, command := range map[string]*int64{"replay": &replay, "discard": &discard} {
		*command = one[int64](t, d.store,
			"insert into millrace.commands (projection_id, kind, dead_letter_ids, max_events) values ($1, $2, array[$3::bigint], 1) returning id", l.Row, kind, last)
	}
	other = one[int64](t, d.store,
		"insert into millrace.commands (projection_id, kind, error, max_events) values ($1, 'replay', 'no such error', 1) returning id", l.Row)
	statements := map[string]struct {
		sql  string
		args []any
	}{
		"next_due":     {c.sql("due_replays"), []any{l.Row, policy.MaxReplays, "", false}},
		"open_command": {c.sql("open_command"), []any{replay, l.Row}},
		"next": {
			c.sql("next_dead_letter"), []any{l.Row,
				replay, int64(letters), int64(letters), []int64{last}, nil, nil, nil},
		},
		"discard": {
			c.sql("discard_dead_letters"), []any{l.Row,
				discard, int64(letters), int64(letters), []int64{last}, nil, nil, nil, 1},
		},
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			mustExec(t, d.store, "vacuum analyze millrace.dead_letters, millrace.parked_streams, millrace.commands")
		}
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			for name, s := range statements {
				read := readBy(t, d.store, "set local plan_cache_mode = "+mode, func(tx pgx.Tx) error {
					tag, err := tx.Exec(testContext(t), s.sql, s.args...)
					if tag.RowsAffected() != 1 && name != "next_due" {
						t.Errorf("%s: %d rows", name, tag.RowsAffected())
					}
					return err
				})["dead_letters"]
				if read.Scans > 0 || read.Rows > 50 {
					t.Errorf("%s, analyzed %v, %s: %+v\n%s", name, analyzed, mode, read,
						explain(t, d.store, s.sql, s.args...))
				}
			}
		}
	}
	// The control: a replay by a part of the error reads them all.
	if read := readBy(t, d.store, "select", func(tx pgx.Tx) error {
		_, err := tx.Exec(testContext(t), c.sql("next_dead_letter"), l.Row, other, 1, int64(1)<<60, nil, nil, nil,
			"no such error")
		return err
	}); read["dead_letters"].Rows < letters {
		t.Errorf("the control reads %+v", read)
	}
	var took []time.Duration
	for range 50 {
		begin := time.Now()
		if scheduled, _, err := d.plane().ScheduleReplay(testContext(t), l, policy, false); err != nil || scheduled {
			t.Fatal(scheduled, err) // since commands are open
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	t.Logf("with %d letters a look takes %v, at most %v", letters, took[len(took)/2], took[len(took)-1])
}

// Each command, also that of an automatic replay, first deletes old ones of its projection. With many replays nearly
// all ended within a day, and a purge that is repeated finds few dead letters that are old enough.
func TestOldCommandsAndDeadLettersAreFoundByTheirAge(t *testing.T) {
	t.Parallel()
	const recent, old = 20_000, 3
	d := newDrawer(t, 1)
	for _, table := range []string{"commands", "dead_letters"} {
		mustExec(t, d.store, "alter table millrace."+table+" set (autovacuum_enabled = off)")
	}
	ended := "now() - make_interval(hours => case when n <= $3 then 48 else 1 end)"
	mustExec(t, d.store, `insert into millrace.commands (projection_id, kind, dead_letter_ids, max_events, ended_at)
		select $1, 'replay', array[n], 1, `+ended+
		" from generate_series(1, $2::int) n", d.lease.Row, recent, old)
	mustExec(t, d.store,
		`insert into millrace.dead_letters (projection_id, position, stream_id, stream_version, type, state, error, stack, attempts, first_failed_at, last_failed_at, ended_at)
		select $1, n, 's' || n, 1, 'T', 'resolved', 'bad', '', 5, now(), now(), `+ended+
			" from generate_series(1, $2::int) n", d.lease.Row, recent, old)
	of := d.lease.ID
	statements := map[string]planned{
		"commands": {sql: d.store.control.sql("delete_old_commands"), args: []any{[]int32{d.lease.Row}}},
		"dead_letters": {sql: d.store.control.sql("purge_dead_letters"),
			args: []any{of.Tenant, of.Name, 0, nil, nil, nil, nil, 24 * time.Hour, 1000}},
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			mustExec(t, d.store, "vacuum analyze millrace.dead_letters, millrace.commands")
		}
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			for table, s := range statements {
				read := readBy(t, d.store, "set local plan_cache_mode = "+mode, func(tx pgx.Tx) error {
					tag, err := tx.Exec(testContext(t), s.sql, s.args...)
					if tag.RowsAffected() != old {
						t.Errorf("%d %s are deleted, want %d", tag.RowsAffected(), table, old)
					}
					return err
				})[table]
				if read.Scans > 0 || read.Rows > 50 {
					t.Errorf("%s, analyzed %v, %s: %+v\n%s", table, analyzed, mode, read,
						explain(t, d.store, s.sql, s.args...))
				}
			}
		}
	}
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
		mustExec(t, d.store,
			`insert into millrace.dead_letters (projection_id, position, stream_id, stream_version, type, blocked_by_stream, state, error, stack, attempts, replays, first_failed_at, last_failed_at)
			select $1, n, 's' || (random() * 5)::int, n, 'T', random() < 0.3, (array['parked', 'parked', 'replaying', 'resolved', 'discarded'])[1 + floor(random() * 5)],
			       (array['bad', 'worse'])[1 + floor(random() * 2)], '', 5, floor(random() * 6), now(), now() - make_interval(secs => random() * 600) from generate_series(1, $2) n`, d.lease.Row, 1+round)
		mustExec(t, d.store,
			"insert into millrace.parked_streams (projection_id, stream_id) select $1, 's' || n from generate_series(1, 3) n", d.lease.Row)
		for _, policy := range [][]any{{5, 60.0, 2.0, 300.0, ""}, {3, 60.0, 1.0, 60.0, "worse"},
			{math.MaxInt32, 10.0, 3.0, 3600.0, "bad"}} {
			args := append([]any{d.lease.Row}, policy...)
			want := one[int64](t, d.store, all, args...)
			p := projection.ReplayPolicy{
				MaxReplays: policy[0].(int), Interval: seconds(policy[1].(float64)), Factor: policy[2].(float64),
				Cap: seconds(policy[3].(float64)), Error: policy[4].(string),
			}
			got, _, err := control.NextDue(d.store.on(testContext(t), d.store.pool), d.lease.Row, p, false)
			noError(t, err)
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

package pgstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/eventlog"
)

// eventsPerStream is how many events each stream has for the tests of plans.
const eventsPerStream = 5

// hotTenantStatements fills the tables of the default tenant with planEvents events, and returns the hot statements on
// them.
func hotTenantStatements(t *testing.T, store *Store) []planned {
	t.Helper()
	for _, table := range tenantTables {
		// The server must not analyse at any time, and nothing here has to survive a crash.
		mustExec(t, store, "alter table millrace_default."+table+" set unlogged")
		mustExec(t, store, "alter table millrace_default."+table+" set (autovacuum_enabled = off)")
	}
	last, streams := *planEvents, *planEvents/eventsPerStream
	keys := min(streams, 100_000)
	mustExec(t, store, `insert into millrace_default.streams select 's' || n, $2 from generate_series(1, $1::int) n`,
		streams, eventsPerStream)
	for version := range eventsPerStream { // each statement has its own deadline
		mustExec(t, store, `insert into millrace_default.events (stream_id, stream_version, type, body)
			select 's' || n, $2, 'T' || n % 10, '{"a": 1}' from generate_series(1, $1::int) n`, streams, version+1)
	}
	mustExec(t, store,
		`insert into millrace_default.append_keys select 'k' || n, 's' || n from generate_series(1, $1::int) n`, keys)
	mustExec(t, store,
		`insert into millrace_default.append_results select 'k' || n, 1, 5 from generate_series(1, $1::int) n`, keys)

	const page, quarter = 500, int64(1) << 26
	types := []string{"T1", "T2"}
	in := store.tenant
	letter := one[int64](t, store, "select max(id) from millrace.dead_letters where stream_id = 's300'")
	statements := []planned{
		{"tail at the end", in.sql("read_tail"), []any{last - 10, maxPosition, eventlog.TailEvents}, 10},
		{"tail from the middle", in.sql("read_tail"), []any{last / 2, maxPosition, eventlog.TailEvents},
			eventlog.TailEvents},
		{"tail from the first on", in.sql("read_tail"), []any{0, maxPosition, page}, page},
		{"range from the middle", in.sql("read_range"), []any{last / 2, last - 1000, page, types}, page},
		{"range from the first on", in.sql("read_range"), []any{0, last, page, types}, page},
		{
			"share from the middle", in.sql("read_share"),
			[]any{last / 2, last - 1000, page, quarter, 2 * quarter, []string{}}, page,
		},
		{"share at the end", in.sql("read_share"), []any{last - 10, maxPosition, page, 0, 4 * quarter, []string{}}, 10},
		{"stream", in.sql("read_stream"), []any{"s77", 2, page, 0}, 4},
		{"types of a stream", in.sql("read_stream_types"), []any{"s77", 2, page, 0, []string{"T7"}}, 4},
		{"head", in.sql("head"), nil, 1},
		{"head of a tenant", in.sql("head_of_tenant"), []any{in.name}, 1},
		{"heads", must(store.events.headsStatement([]string{in.name}))(t), nil, 1},
		{
			"ages after two positions",
			must(store.events.agesStatement([]string{in.name},
				map[string][]int64{in.name: {int64(last / 2), int64(last - 1)}}))(t), nil, 2,
		},
		{"description of a stream", in.sql("stream"), []any{in.name, "s77"}, 1},
		{"later events of a dead letter", in.sql("later_handled"), []any{in.name, letter, maxPosition, types, true}, 1},
		{"version", in.sql("stream_version"), []any{"s77"}, 1},
		{"first result", in.sql("first_append"), []any{"k77"}, 1},
	}
	for _, expected := range []event.Expected{event.Any, event.NoStream, event.Exact(eventsPerStream)} {
		stream := "s77"
		if expected == event.NoStream {
			stream = "new"
		}
		for _, key := range []string{"", "new"} {
			for _, expire := range []bool{false, true} {
				if key == "" && expire {
					continue
				}
				e := expected
				if key != "" {
					e = e.WithKey(key)
				}
				for _, events := range []int{1, 3, 4} {
					what := someEvents(events)
					if events == 4 {
						what[3].Time = time.Date(2017, time.January, 9, 8, 49, 50, 0, time.UTC)
					}
					a, err := in.newAppend(event.Appending{Stream: stream, Expected: e, Events: what})
					noError(t, err)
					a.expire = expire
					statement, args := a.statement()
					text := in.sql(statement)
					if plan := explain(t, store, text, args...); expire &&
						!strings.Contains(plan, "append_keys_created_at_idx") {
						t.Errorf("old keys are looked for by\n%s", plan)
					}
					statements = append(statements,
						planned{fmt.Sprintf("append %d, %v %s", events, e, key), text, args, int64(events)})
					if !expire && events < 4 {
						a.own = &engine.Page{}
						statement, args = a.statement()
						statements = append(statements,
							planned{
								fmt.Sprintf("append %d, %v %s, returned", events, e, key), in.sql(statement), args,
								int64(events),
							})
					}
				}
			}
		}
	}
	return statements
}

// If the tables were analyzed when nearly all keys had expired, the planner expects one row in each, however many
// follow.
func TestExpiredKeysAreFoundByTheirIndexes(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	const keys = 20_000
	fill := func() {
		mustExec(t, store, `insert into millrace_default.append_keys
			select 'k' || n, 's', now() - interval '1 year' from generate_series(1, $1::int) n`, keys)
		mustExec(t, store, `insert into millrace_default.append_results
			select 'k' || n, n, n from generate_series(1, $1::int) n`, keys)
	}
	refill(t, store, fill, "millrace_default.append_keys", "millrace_default.append_results")
	a, err := store.tenant.newAppend(event.Appending{
		Stream: "s", Expected: event.Any.WithKey("new"), Events: someEvents(1),
	})
	noError(t, err)
	a.expire = true
	statement, args := a.statement()
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		read := readBy(t, store, "set local plan_cache_mode = "+mode, func(tx pgx.Tx) error {
			_, err := tx.Exec(testContext(t), store.tenant.sql(statement), args...)
			return err
		})
		for _, table := range []string{"append_keys", "append_results"} {
			if r := read[table]; r.Scans > 0 || r.Rows < 64 || r.Rows > 200 {
				t.Errorf("%s, %s: %+v\n%s", mode, table, r, explain(t, store, store.tenant.sql(statement), args...))
			}
		}
	}
}

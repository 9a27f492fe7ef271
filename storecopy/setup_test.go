package storecopy

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/pgtest/testmain"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

func TestMain(m *testing.M) {
	if childMain() {
		return
	}
	testmain.RunWithExamples(m)
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must returns the result of a call, or ends the test with its error: must(call())(t).
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

// newSource is a migrated store in a new file.
func newSource(t testing.TB) *sqlitestore.Store {
	t.Helper()
	source := openSource(t, filepath.Join(t.TempDir(), "store.db"))
	noError(t, source.Migrate(testContext(t)))
	return source
}

func openSource(t testing.TB, path string) *sqlitestore.Store {
	t.Helper()
	source := must(sqlitestore.Open(testContext(t), path, sqlitestore.Options{Synchronous: sqlitestore.SynchronousNormal}))(t)
	t.Cleanup(source.Close)
	return source
}

// newTarget is a migrated store in a new database.
func newTarget(t testing.TB) *pgstore.Store {
	t.Helper()
	target := openTarget(t, pgtest.Database(t))
	noError(t, target.Migrate(testContext(t)))
	return target
}

func openTarget(t testing.TB, dsn string) *pgstore.Store {
	t.Helper()
	pool := must(pgxpool.New(testContext(t), dsn))(t)
	t.Cleanup(pool.Close)
	target := must(pgstore.OpenPool(testContext(t), pool, pgstore.Options{}))(t)
	t.Cleanup(target.Close)
	return target
}

// sqlite runs a statement on the file.
func sqlite(t testing.TB, source *sqlitestore.Store, query string, args ...any) {
	t.Helper()
	noError(t, source.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	}))
}

// postgres runs a statement on the target.
func postgres(t testing.TB, target *pgstore.Store, query string, args ...any) {
	t.Helper()
	if _, err := target.Pool().Exec(testContext(t), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// keepAll keeps the read models of the projections that fill makes.
func keepAll() Options {
	return Options{Projections: map[string]ReadModel{"plain": Keep, "split": Keep, "resplit": Keep, "Ünïcode": Keep}}
}

// filler fills a store with random contents.
type filler struct {
	testing.TB
	*rand.Rand
	source *sqlitestore.Store
}

// names are texts that are easily changed on the way.
var names = []string{"a", "A", "ä", "z", "日本 語", "😀", "it's", `"quoted"`, `\`, "%", "{control}", "$1", "\u200d", "~", "line\nbreak", "\u007f", strings.Repeat("x", 480)}

func (f *filler) name() string { return names[f.IntN(len(names))] }

func (f *filler) optional(s string) string {
	if f.IntN(2) == 0 {
		return ""
	}
	return s
}

// tenants is what fill creates.
var tenants = []string{projection.DefaultTenant, "acme", "Ünï'cödé \"tenant\" " + strings.Repeat("long", 20), "empty"}

// fill fills a store with tenants, events, keys, projections, dead letters, parked streams and commands.
func fill(t testing.TB, source *sqlitestore.Store, seed uint64, events int) {
	t.Helper()
	noError(t, source.CreateTenants(testContext(t), tenants...))
	fillSome(t, source, seed, events, tenants[:3])
	sqlite(t, source, `update millrace_tenants set state = 'archived', paused = 1 where name = ?`, tenants[2])
	sqlite(t, source, `update millrace_tenants set paused = 1 where name = 'acme'`)
}

// fillSome fills some tenants.
func fillSome(t testing.TB, source *sqlitestore.Store, seed uint64, events int, names []string) {
	t.Helper()
	t.Logf("seed %d", seed)
	noError(t, source.CreateTenants(testContext(t), names...))
	f := &filler{t, rand.New(rand.NewPCG(seed, 0)), source}
	for _, name := range names {
		f.events(name, events)
		f.projections(name)
	}
}

// events appends events, and deletes some, among them the last ones.
func (f *filler) events(tenant string, n int) {
	t := must(f.source.ForTenant(tenant))(f)
	bodies := []string{`{"z":1,"a":[1.10,1e3,-0,{}],"a":2}`, `null`, `"\u00e9\ud83d\ude00"`, ` [ true , false ] `, `12345678901234567890.000100`, `{"":"\u0001"}`, `1E-7`}
	for i := 0; i < n; {
		stream, together := f.name()+fmt.Sprint(f.IntN(5)), 1+f.IntN(5)
		list := make([]event.Event, together)
		for k := range list {
			list[k] = event.Event{Type: f.name(), Body: json.RawMessage(bodies[f.IntN(len(bodies))]), CausationID: f.optional(f.name()), CorrelationID: f.optional(f.name())}
			if f.IntN(3) == 0 {
				list[k].Headers = map[string]string{f.name(): f.name(), "empty": "", "nul": "a\u2400\u0001"}
			}
		}
		expected := event.Any
		if f.IntN(3) == 0 {
			expected = expected.WithKey(fmt.Sprint(excerptOf(f.name()), i))
		}
		must(t.Append(testContext(f), stream, expected, list...))(f)
		i += together
	}
	sqlite(f, f.source, `delete from millrace_events where tenant = (select id from millrace_tenants where name = ?1)
		and (position % 17 = 3 or position > (select head - 3 from millrace_tenants where name = ?1))`, tenant)
	sqlite(f, f.source, `update millrace_append_keys set created_at = created_at - ?`, f.Int64N(1e9))
	for i := range 3 {
		must(t.Alias(testContext(f), fmt.Sprint(excerptOf(f.name()), i)))(f)
	}
}

func excerptOf(s string) string { return s[:min(len(s), 40)] }

// projections inserts projections in several states, with dead letters and commands.
func (f *filler) projections(tenant string) {
	for _, name := range []string{"plain", "split", "resplit", "Ünïcode"} {
		partitions := 1
		if name == "split" || name == "resplit" {
			partitions = 2 + f.IntN(3)
		}
		token := uuid.NewString()
		for _, n := range partition.Numbers(partitions) {
			slots := partition.RangeOf(n, partitions)
			passed := "[]"
			if name == "resplit" {
				passed = fmt.Sprintf("[[%d,%d,%d],[%d,%d,%d]]", slots.From, slots.From+5, 1+f.IntN(20), slots.From+5, slots.To-1, 1<<39)
			}
			f.projection(tenant, name, n, partitions, slots, passed, token)
		}
	}
}

func (f *filler) projection(tenant, name string, n, partitions int, slots partition.Range, passed, token string) {
	now := time.Now().UnixMicro()
	maybe := func(v any) any {
		if f.IntN(2) == 0 {
			return nil
		}
		return v
	}
	sqlite(f, f.source, `insert into millrace_projections (tenant, name, partition, partitions, slot_from, slot_to, passed, token, desired_state, tenant_suspended,
			failed_reason, failed_epoch, halted, skipped, parked, failing_position, attempts, crash_position, crash_attempts, crash_since, failing_since,
			last_error, last_error_at, missing_object, delivers, rebuild_since, rebuild_from, rebuild_to)
		values ((select id from millrace_tenants where name = ?), ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		tenant, name, n, partitions, slots.From, slots.To, passed, token, []string{"run", "pause"}[f.IntN(2)],
		maybe("why "+f.name()), maybe(f.IntN(9)), f.IntN(2), f.IntN(100), 7, f.IntN(50), f.IntN(5), f.IntN(50), f.IntN(5), maybe(now-5), maybe(now-f.Int64N(1e12)),
		maybe("broken \x00 \xff "+f.name()), maybe(now), f.IntN(2), n%2, now, n, 10*n)
	owner, free := any(nil), any(now)
	if f.IntN(3) == 0 {
		owner, free = uuid.NewString(), nil
	}
	sqlite(f, f.source, `insert into millrace_leases (id, owner, epoch, checkpoint, crash_count, free_since) values ((select max(id) from millrace_projections), ?, ?, ?, ?, ?)`,
		owner, f.IntN(100), f.IntN(60), f.IntN(3), free)
	f.deadLetters(now)
}

// deadLetters inserts dead letters, parked streams and commands of the last projection.
func (f *filler) deadLetters(now int64) {
	for i, state := range []string{"parked", "replaying", "resolved", "discarded", "parked", "parked"} {
		var ended any
		if state == "resolved" || state == "discarded" {
			ended = now - int64(i)
		}
		sqlite(f, f.source, `insert into millrace_dead_letters (projection, position, stream_id, version, type, blocked_by_stream, state, error, stack, attempts,
				replays, open_replays, last_command, first_failed_at, last_failed_at, ended_at)
			values ((select max(id) from millrace_projections), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			2+7*i, f.name()+"0", i+1, f.name(), i/5, state, "failed\x00 "+f.name(), "stack\xff of "+f.name(), f.IntN(5), f.IntN(5), f.IntN(2), f.IntN(3)*i, now-100, now-50, ended)
	}
	sqlite(f, f.source, `insert into millrace_parked_streams (projection, stream_id, last_command) values ((select max(id) from millrace_projections), ?, ?),
		((select max(id) from millrace_projections), ?, 0)`, f.name()+"0", f.IntN(3), f.name()+"1")
	sqlite(f, f.source, `insert into millrace_commands (projection, kind, dead_letter_ids, max_events, created_at, ended_at) values
		((select max(id) from millrace_projections), 'replay', (select json_group_array(id) from millrace_dead_letters where state = 'parked'), 10, ?, ?),
		((select max(id) from millrace_projections), 'discard', null, 10, ?, null)`, now, now+1, now+2)
	sqlite(f, f.source, `insert into millrace_retired_projections (tenant, name, reason, successor, retired_at)
		select tenant, name || ' once', 'renamed', name, ?1 from millrace_projections where id = (select max(id) from millrace_projections)
		union all select tenant, name || ' gone', 'forgotten', null, ?1 + 1 from millrace_projections where id = (select max(id) from millrace_projections)
		on conflict do nothing`, now)
	sqlite(f, f.source, `insert into millrace_commands (root, projection, kind, stream_id, type, error, max_events, current_stream, after_position, done, failed, current_dead_letter, created_at)
		values ((select max(id) from millrace_commands), (select max(id) from millrace_projections), 'replay', ?, ?, ?, 100, ?, 5, 1, 2, (select max(id) from millrace_dead_letters), ?)`,
		f.name(), f.name(), f.name(), f.name()+"0", now)
}

// lines are the rows of a table, for comparisons.
type lines map[string][]string

// diff reports the lines that only one of both has.
func (l lines) diff(t testing.TB, other lines) {
	t.Helper()
	for _, table := range slices.Sorted(maps.Keys(l)) {
		for i := range max(len(l[table]), len(other[table])) {
			var a, b string
			if i < len(l[table]) {
				a = l[table][i]
			}
			if i < len(other[table]) {
				b = other[table][i]
			}
			if a != b {
				t.Errorf("%s, row %d:\n%s\n%s", table, i+1, a, b)
				break
			}
		}
	}
}

func collect(t testing.TB, rows *sql.Rows, err error) (list []string) {
	t.Helper()
	noError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var line string
		noError(t, rows.Scan(&line))
		list = append(list, line)
	}
	noError(t, rows.Err())
	return list
}

func collectPG(t testing.TB, target *pgstore.Store, query string, args ...any) []string {
	t.Helper()
	rows, _ := target.Pool().Query(testContext(t), query, args...)
	return must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
}

func replacer(oldnew ...string) func(string) string { return strings.NewReplacer(oldnew...).Replace }

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

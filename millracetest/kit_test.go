package millracetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

type paid struct {
	Customer string `json:"customer"`
	Amount   int    `json:"amount"`
}

func (paid) EventType() string { return "paid" }

const (
	table = "create table totals (customer text primary key, total integer, note text)"
	add   = "insert into totals (customer, total) values ($1, $2) on conflict (customer) do update set total = totals.total + excluded.total"
	all   = "select customer, total, note from totals order by customer"
)

// execFunc runs a statement in the transaction of a handler.
type execFunc func(sql string, args ...any) error

// kind is a store, and handlers on it that add up payments.
type kind struct {
	open func(t testing.TB, setup ...string) *Kit
	// each calls then after each event, in its transaction.
	each  func(then func(ctx context.Context, exec execFunc, e event.Envelope) error) millrace.Handler
	batch func() millrace.Handler
	// queued is batch by a function that queues its statements.
	queued millrace.Handler
}

// kit returns a Kit with the table of totals.
func (on kind) kit(t testing.TB) *Kit { return on.open(t, table) }

var kinds = map[string]kind{
	"a file": {
		func(t testing.TB, setup ...string) *Kit { return SQLite(t, setup...) }, sqliteEach, sqliteBatch,
		sqlitestore.OnQueuedBatch(queueTotals),
	},
	"a database": {
		func(t testing.TB, setup ...string) *Kit { return Postgres(t, "", setup...) }, pgEach, pgBatch,
		pgstore.OnQueuedBatch(queueTotals),
	},
	"a schema": {
		func(t testing.TB, setup ...string) *Kit { return Postgres(t, withoutDatabases(t), setup...) }, pgEach, pgBatch,
		pgstore.OnQueuedBatch(queueTotals),
	},
}

func sqliteEach(then func(ctx context.Context, exec execFunc, e event.Envelope) error) millrace.Handler {
	return sqlitestore.On(func(ctx context.Context, tx *sql.Tx, e event.Of[paid]) error {
		exec := func(sql string, args ...any) error {
			_, err := tx.ExecContext(ctx, sql, args...)
			return err
		}
		return errors.Join(exec(add, e.Body.Customer, e.Body.Amount), then(ctx, exec, e.Envelope))
	})
}

func sqliteBatch() millrace.Handler {
	return sqlitestore.OnBatch(func(ctx context.Context, tx *sql.Tx, events []event.Of[paid]) error {
		for _, e := range events {
			if _, err := tx.ExecContext(ctx, add, e.Body.Customer, e.Body.Amount); err != nil {
				return err
			}
		}
		return nil
	})
}

func queueTotals(_ context.Context, q pgstore.Queue, events []event.Of[paid]) error {
	for _, e := range events {
		q.Exec(add, e.Body.Customer, e.Body.Amount)
	}
	return nil
}

func pgEach(then func(ctx context.Context, exec execFunc, e event.Envelope) error) millrace.Handler {
	return pgstore.On(func(ctx context.Context, tx pgx.Tx, e event.Of[paid]) error {
		exec := func(sql string, args ...any) error {
			_, err := tx.Exec(ctx, sql, args...)
			return err
		}
		return errors.Join(exec(add, e.Body.Customer, e.Body.Amount), then(ctx, exec, e.Envelope))
	})
}

func pgBatch() millrace.Handler {
	return pgstore.OnBatch(func(ctx context.Context, tx pgx.Tx, events []event.Of[paid]) error {
		for _, e := range events {
			if _, err := tx.Exec(ctx, add, e.Body.Customer, e.Body.Amount); err != nil {
				return err
			}
		}
		return nil
	})
}

// withoutDatabases returns the DSN of a user who may create schemas, and no databases.
func withoutDatabases(t testing.TB) string {
	t.Helper()
	server, role := pgtest.Shared(t), fmt.Sprintf("kit_%08x", rand.Uint32())
	exec := func(dsn string, statements ...string) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		conn, err := pgx.Connect(ctx, dsn)
		for i := 0; err == nil && i < len(statements); i++ {
			_, err = conn.Exec(ctx, statements[i])
		}
		if err != nil || conn.Close(ctx) != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { exec(server, "drop role "+role) }) // after the database with what it owns
	database := pgtest.DatabaseOn(t, server)
	exec(database, "create role "+role+" login password 'secret'", "grant create on database "+pgxName(t, database)+
		" to "+role)
	for name, value := range map[string]string{"user": role, "password": "secret"} {
		var err error
		database, err = pgtest.WithSetting(database, name, value)
		if err != nil {
			t.Fatal(err)
		}
	}
	return database
}

// onEach runs a test on each store.
func onEach(t *testing.T, test func(t *testing.T, on kind)) { onThese(t, test, "a file", "a database") }

// onEachPlace runs a test on each store, and in a schema of a database that others use, too.
func onEachPlace(t *testing.T, test func(t *testing.T, on kind)) {
	onThese(t, test, "a file", "a database", "a schema")
}

func onThese(t *testing.T, test func(t *testing.T, on kind), names ...string) {
	t.Parallel()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, kinds[name])
		})
	}
}

// nothing does nothing after an event.
func nothing(context.Context, execFunc, event.Envelope) error { return nil }

func (on kind) totals() millrace.Projection {
	return millrace.Projection{Name: "totals", Handler: on.each(nothing)}
}

// given has six events of two customers.
func (on kind) given(t testing.TB) *Kit {
	t.Helper()
	k := on.kit(t)
	k.Given("order-1", event.New(paid{"Ada", 30}), event.New(paid{"Bob", 7}), event.New(paid{"Ada", 12}))
	k.Given("order-2", event.New(paid{"Bob", 1}), event.New(paid{"Bob", 1}), event.New(paid{"Ada", 1}))
	return k
}

// recorder is a test whose failures are recorded.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	text     strings.Builder
	cleanups []func()
}

func (r *recorder) Cleanup(fn func()) { r.cleanups = append(r.cleanups, fn) }
func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.text, format+"\n", args...)
}
func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// failures returns how a test fails, empty if it does not.
func failures(t *testing.T, test func(t testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	var group sync.WaitGroup
	group.Go(func() {
		defer func() {
			for i := len(r.cleanups) - 1; i >= 0; i-- {
				r.cleanups[i]()
			}
		}()
		test(r)
	})
	group.Wait()
	return r.text.String()
}

func TestProjectionIsTestedInThreeLines(t *testing.T) {
	onEachPlace(t, func(t *testing.T, on kind) {
		k := on.kit(t)
		k.Given("order-1", event.New(paid{"Ada", 30}), event.New(paid{"Ada", 12}))
		k.When(on.totals())
		k.Then(all, "Ada | 42 | NULL")

		k.Given("order-2", event.New(paid{"Bob", 1}), event.Untyped("other", nil))
		status := k.When(on.totals())
		k.Then(all, "Ada | 42 | NULL", "Bob | 1 | NULL")
		k.Then("select * from totals where total > 100")
		k.Parked("totals")
		if p := status.Projection(millrace.ProjectionID{Name: "totals"}); p.Position != 4 || p.Applied != 1 {
			t.Errorf("%+v", p)
		}
	})
}

func TestThenNamesTheRowsThatDiffer(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		text := failures(t, func(t testing.TB) {
			k := on.given(t)
			k.When(on.totals())
			k.Then(all, "Ada | 44 | NULL", "Bob | 9 | NULL", "Carl | 1 | NULL")
		})
		if want := all +
			":\n  (- want, + got)\n  - Ada | 44 | NULL\n  + Ada | 43 | NULL\n    Bob | 9 | NULL\n  - Carl | 1 | NULL\n\n"; text != want {
			t.Errorf("%q, want %q", text, want)
		}
	})
}

func TestParkedEventThatIsNotExpectedFailsTheTest(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		for name, test := range map[string]struct {
			then func(k *Kit)
			says []string
		}{
			"not expected": {
				func(*Kit) {}, []string{
					"did not expect",
					"projection default/totals parked position 2 (paid of stream order-1): event at position 2: fault of the test",
				},
			},
			"expected": {
				func(k *Kit) { k.Then(all, "Ada | 43 | NULL", "Bob | 2 | NULL"); k.Parked("totals", 2) }, nil,
			},
			"another position": {
				func(k *Kit) { k.Parked("totals", 3) }, []string{
					"has parked the positions [2], want [3]", "fault of the test",
				},
			},
			"noted by Then": {
				func(k *Kit) { k.Then(all, "Ada | 43 | NULL"); k.Parked("totals", 2) }, []string{
					"+ Bob | 2 | NULL", "parked position 2",
				},
			},
		} {
			text := failures(t, func(t testing.TB) {
				k := on.given(t)
				poisoned := on.totals()
				poisoned.OnFailure = projection.ActionPark
				poisoned.Middleware = []millrace.Middleware{k.FailAt(2, Always)}
				k.When(poisoned)
				test.then(k)
			})
			for _, want := range test.says {
				if !strings.Contains(text, want) {
					t.Errorf("%s: %q does not contain %q", name, text, want)
				}
			}
			if len(test.says) == 0 && text != "" {
				t.Errorf("%s: %s", name, text)
			}
		}
	})
}

func TestFailureIsReportedAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		began := time.Now()
		for want, p := range map[string]millrace.Projection{
			"no such table": {Name: "totals", OnFailure: projection.ActionStop,
				Handler: on.each(func(_ context.Context, exec execFunc, _ event.Envelope) error {
					return fmt.Errorf("no such table: %w", exec("insert into nowhere values (1)"))
				})},
			"must be set": {Name: "totals"},
			"fault of the test": {
				Name: "totals", OnFailure: projection.ActionStop,
				Handler: on.each(func(context.Context, execFunc, event.Envelope) error { return ErrInjected }),
			},
		} {
			text := failures(t, func(t testing.TB) { on.given(t).When(p) })
			if !strings.Contains(text, want) {
				t.Errorf("%q does not contain %q", text, want)
			}
		}
		if time.Since(began) > limit {
			t.Errorf("it took %v", time.Since(began))
		}
	})
}

func TestFaultsDisturbAHandler(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		for name, test := range map[string]struct {
			fault func(k *Kit) millrace.Middleware
			calls int // of the first event
		}{
			"none":        {func(k *Kit) millrace.Middleware { return k.Slow(0) }, 1},
			"fails twice": {func(k *Kit) millrace.Middleware { return k.FailAt(1, 2) }, 1},
			"lost commit": {(*Kit).LostCommit, 2},
			"lost lease":  {(*Kit).LostLease, 2},
		} {
			k, calls := on.given(t), 0
			p := millrace.Projection{Name: "totals", MaxEvents: 1, Middleware: []millrace.Middleware{test.fault(k)},
				Handler: on.each(func(_ context.Context, _ execFunc, e event.Envelope) error {
					if e.Position == 1 {
						calls++
					}
					return nil
				})}
			k.When(p)
			k.Then(all, "Ada | 43 | NULL", "Bob | 9 | NULL")
			if calls != test.calls {
				t.Errorf("%s: the handler was called %d times, want %d", name, calls, test.calls)
			}
		}
		k := on.given(t)
		k.When(millrace.Projection{Name: "slow", OnFailure: projection.ActionPark, Timeout: 50 * time.Millisecond,
			Retry: projection.RetryPolicy{MaxAttempts: 1}, MaxFailureShare: projection.NoLimit,
			Middleware: []millrace.Middleware{k.Slow(time.Hour)}, Handler: on.totals().Handler})
		for _, letter := range k.Parked("slow", 1, 2, 3, 4, 5, 6) {
			if !strings.Contains(letter.Error, projection.ErrTimeout.Error()) {
				t.Errorf("%+v", letter)
			}
		}
	})
}

func TestRepeatableProjectionsPass(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		Repeatable(t, on.given,
			func() millrace.Projection { return millrace.Projection{Name: "totals", Handler: on.batch()} }, all)
		Repeatable(t, on.given,
			func() millrace.Projection { return millrace.Projection{Name: "totals", Handler: on.queued} }, all)
		Repeatable(t, on.given, func() millrace.Projection { // its parked events are the same, too
			return millrace.Projection{Name: "totals",
				Handler: on.each(func(_ context.Context, _ execFunc, e event.Envelope) error {
					if e.Position == 2 {
						return ErrInjected
					}
					return nil
				})}
		}, all)
	})
}

func TestProjectionsThatAreNotRepeatableAreFound(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		outside := 0
		for name, test := range map[string]struct {
			projection func() millrace.Projection
			by         []string // the faults that find it
		}{
			"state in memory": {func() millrace.Projection {
				sum := 0
				return millrace.Projection{Name: "totals",
					Handler: on.each(func(_ context.Context, exec execFunc, e event.Envelope) error {
						sum++
						return exec("update totals set note = cast($1 as text)", fmt.Sprint(sum))
					})}
			}, []string{"lost commit", "panics after the handler", "lost lease"}},
			"effects outside": {func() millrace.Projection {
				return millrace.Projection{Name: "totals",
					Handler: on.each(func(_ context.Context, exec execFunc, e event.Envelope) error {
						outside++
						return exec("update totals set note = cast($1 as text)", fmt.Sprint(outside))
					})}
			}, []string{"batches of one event", "fails before the handler"}},
		} {
			outside = 0
			var want outcome
			if text := failures(t,
				func(t testing.TB) { want = undisturbed(t, on.given, test.projection, []string{all}) }); text != "" {
				t.Fatal(text)
			}
			for _, by := range test.by {
				d := named(by)
				text := failures(t, func(t testing.TB) { want.compare(t, on.given, test.projection, d) })
				if !strings.Contains(text, by+": "+all) || !strings.Contains(text, "+ Ada | 43 | ") {
					t.Errorf("%s: %s does not find it: %q", name, by, text)
				}
			}
		}
	})
}

func TestRepeatableNeedsRows(t *testing.T) {
	on := kinds["a file"]
	text := failures(t, func(t testing.TB) { undisturbed(t, on.kit, on.totals, []string{all}) })
	if !strings.Contains(text, "nothing to compare") {
		t.Errorf("%q", text)
	}
}

func TestKitsOfSeveralTestsShareNothing(t *testing.T) {
	onEachPlace(t, func(t *testing.T, on kind) {
		first, second := on.given(t), on.kit(t)
		first.When(on.totals())
		second.When(on.totals())
		second.Then(all)
	})
}

func TestDatabasesAreMadeOnAGivenServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Database(t)
	k := Postgres(t, server, table)
	k.When(kinds["a database"].totals())
	k.Then("select current_database() = '"+pgxName(t, server)+"'", "f")
}

// pgxName is the name of the database of a DSN.
func pgxName(t testing.TB, dsn string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return config.Database
}

func TestSchemasOfAKitAreDropped(t *testing.T) {
	t.Parallel()
	dsn := withoutDatabases(t)
	const left = "select nspname from pg_namespace where nspname ~ '^(millrace|models)_' and nspname <> current_schema order by 1"
	t.Run("a kit", func(t *testing.T) {
		k := Postgres(t, dsn, table)
		k.Tenant("acme", table)
		other := Postgres(t, dsn, table)
		if found := other.query(left); len(found) != 6 { // of two stores: the control schema, and those of the tenants
			t.Errorf("%q", found)
		}
	})
	Postgres(t, dsn).Then("select count(*) from pg_namespace where nspname ~ '^(millrace|models)_'", "3")
}

func TestDatabaseIsPrivateWhereServersOutliveTheirProcess(t *testing.T) {
	before := serversEnd
	defer func() { serversEnd = before }()
	serversEnd = false
	t.Setenv(pgtest.Variable, "")
	k := Postgres(t, "", table)
	k.Then("select current_database()", "postgres")
}

type foreign struct{ Store }

func TestForeignStoreIsRefused(t *testing.T) {
	t.Parallel()
	if text := failures(t, func(t testing.TB) { New(t, foreign{}) }); !strings.Contains(text,
		"*pgstore.Store or a *sqlitestore.Store: millracetest.foreign") {
		t.Errorf("%q", text)
	}
}

func TestDiffShowsBothSides(t *testing.T) {
	t.Parallel()
	got := diff([]string{"a", "b", "c", "d"}, []string{"b", "x", "d", "e"})
	if want := "  (- want, + got)\n  - a\n    b\n  - c\n  + x\n    d\n  + e\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// named returns a disturbance of Repeatable.
func named(name string) disturbance {
	return disturbances[slices.IndexFunc(disturbances, func(d disturbance) bool { return d.name == name })]
}

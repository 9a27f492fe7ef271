package pgstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

// testContext ends before the test's deadline would, so that a hang becomes an error with a message.
func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// must returns the result of a call, or ends the test with its error: must(call())(t).
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// openStore opens a store that is not migrated, in the database of dsn, with a pool of its own.
func openStore(t testing.TB, dsn string, opts Options, changes ...func(*pgxpool.Config)) *Store {
	t.Helper()
	config := must(pgxpool.ParseConfig(dsn))(t)
	config.MaxConns = 20
	inMode(t, config)
	for _, change := range changes {
		change(config)
	}
	pool := must(pgxpool.NewWithConfig(testContext(t), config))(t)
	t.Cleanup(pool.Close)
	store := must(OpenPool(testContext(t), pool, opts))(t)
	t.Cleanup(store.Close)
	return store
}

// connections sets how many a pool has at most.
func connections(most int32) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.MaxConns = most }
}

// migrated migrates a store and returns it.
func migrated(t testing.TB, store *Store) *Store {
	t.Helper()
	noError(t, store.Migrate(testContext(t)))
	return store
}

var migratedDatabase = pgtest.NewTemplateDatabase(func(ctx context.Context, dsn string) error {
	store, err := Open(ctx, dsn, Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	return store.Migrate(ctx)
})

// newStore is a migrated store in a database of its own.
func newStore(t testing.TB, changes ...func(*pgxpool.Config)) *Store {
	t.Helper()
	return openStore(t, migratedDatabase.Database(t), Options{}, changes...)
}

func newTenant(t testing.TB, store *Store, name string) *Tenant {
	t.Helper()
	tenant := must(store.CreateTenant(testContext(t), name))(t)
	return tenant
}

// someEvents are n events with bodies 0 to n-1.
func someEvents(n int) []event.Event {
	events := make([]event.Event, n)
	for i := range events {
		events[i] = event.Event{Type: "Counted", Body: fmt.Appendf(nil, "%d", i)}
	}
	return events
}

func mustAppend(t testing.TB, tenant *Tenant, stream string, expected event.Expected,
	events ...event.Event) event.Appended {
	t.Helper()
	result := must(tenant.Append(testContext(t), stream, expected, events...))(t)
	return result
}

func mustExec(t testing.TB, store *Store, sql string, args ...any) {
	t.Helper()
	if _, err := store.pool.Exec(testContext(t), sql, append([]any{pgx.QueryExecModeExec}, args...)...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func one[T any](t testing.TB, store *Store, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := store.pool.QueryRow(testContext(t), sql,
		append([]any{pgx.QueryExecModeExec}, args...)...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// lastDrawn is the last position that was drawn for a tenant, whether or not it was used.
func lastDrawn(t testing.TB, tenant *Tenant) int64 {
	t.Helper()
	return one[int64](t, tenant.store, "select case when is_called then last_value else 0 end from "+
		sqltext.Name(tenant.schema)+".events_global_seq_seq")
}

func countEvents(t testing.TB, tenant *Tenant) int {
	t.Helper()
	return one[int](t, tenant.store, "select count(*) from "+sqltext.Name(tenant.schema)+".events")
}

func collect(t testing.TB, seq iter.Seq2[event.Envelope, error]) []event.Envelope {
	t.Helper()
	var events []event.Envelope
	for e, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

func firstError(seq iter.Seq2[event.Envelope, error]) error {
	for _, err := range seq {
		if err != nil {
			return err
		}
	}
	return nil
}

// together runs fn n times at once and returns what went wrong.
func together(n int, fn func(i int) error) error {
	errs := make([]error, n)
	begin := make(chan struct{})
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			<-begin
			errs[i] = fn(i)
		})
	}
	close(begin)
	group.Wait()
	return errors.Join(errs...)
}

// port returns the part of the store that a runtime uses.
// wakeCount counts the wakes of tenants from now on.
func wakeCount(t testing.TB, store *Store) func(tenant string) int {
	t.Helper()
	var mu sync.Mutex
	counts := make(map[string]int)
	t.Cleanup(store.port().OnWake(engine.Waker{Wake: func(tenant string, _ int64, _ *engine.Page) {
		mu.Lock()
		defer mu.Unlock()
		counts[tenant]++
	}}))
	return func(tenant string) int {
		mu.Lock()
		defer mu.Unlock()
		return counts[tenant]
	}
}

// waitBlocked returns when n sessions of the store's database wait for a lock.
func waitBlocked(t testing.TB, store *Store, n int) {
	t.Helper()
	ctx := testContext(t)
	for {
		var waiting int
		err := store.pool.QueryRow(ctx, `select count(*) from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock'`).Scan(&waiting)
		if err != nil {
			t.Fatalf("wait for %d sessions to block: %v", n, err)
		}
		if waiting >= n {
			return
		}
	}
}

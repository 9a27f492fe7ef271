package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest/testmain"
)

func TestMain(m *testing.M) {
	if childMain() {
		return
	}
	testmain.Run(m)
}

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

// newPath returns the path of a file that does not exist, without symbolic links.
func newPath(t testing.TB) string {
	t.Helper()
	return filepath.Join(must(filepath.EvalSymlinks(t.TempDir()))(t), "store.db")
}

// openStore opens the store of a file, until the test ends.
func openStore(t testing.TB, path string, opts Options) *Store {
	t.Helper()
	store := must(Open(testContext(t), path, opts))(t)
	t.Cleanup(store.Close)
	return store
}

// newStore makes a new store. It does not sync each commit: nothing is lost by that, since the machine goes on.
func newStore(t testing.TB) *Store {
	t.Helper()
	return migrated(t, openStore(t, newPath(t), Options{Synchronous: SynchronousNormal}))
}

func migrated(t testing.TB, store *Store) *Store {
	t.Helper()
	noError(t, store.Migrate(testContext(t)))
	return store
}

func newTenant(t testing.TB, store *Store, name string) *Tenant {
	t.Helper()
	return must(store.CreateTenant(testContext(t), name))(t)
}

func someEvents(n int) []event.Event {
	events := make([]event.Event, n)
	for i := range events {
		events[i] = event.Event{Type: "T", Body: []byte(fmt.Sprint(i))}
	}
	return events
}

func mustAppend(t testing.TB, tenant *Tenant, stream string, expected event.Expected,
	events ...event.Event) event.Appended {
	t.Helper()
	return must(tenant.Append(testContext(t), stream, expected, events...))(t)
}

func collect(t testing.TB, events iter.Seq2[event.Envelope, error]) (list []event.Envelope) {
	t.Helper()
	for e, err := range events {
		noError(t, err)
		list = append(list, e)
	}
	return list
}

func all(t testing.TB, tenant *Tenant) []event.Envelope {
	t.Helper()
	return collect(t, tenant.ReadAll(testContext(t), event.ReadOptions{}))
}

func positions(events []event.Envelope) (list []int64) {
	for _, e := range events {
		list = append(list, e.Position)
	}
	return list
}

// mustExec runs a statement over the connection that writes.
func mustExec(t testing.TB, store *Store, query string, args ...any) {
	t.Helper()
	noError(t, store.writer.transact(testContext(t), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(testContext(t), query, args...)
		return err
	}))
}

func one[T any](t testing.TB, store *Store, query string, args ...any) (v T) {
	t.Helper()
	noError(t, store.DB().QueryRowContext(testContext(t), query, args...).Scan(&v))
	return v
}

// wakeCount counts the wake-ups of each tenant.
func wakeCount(t testing.TB, store *Store) func(tenant string) int {
	t.Helper()
	var mu sync.Mutex
	counts := make(map[string]int)
	t.Cleanup(store.wakes.On(engine.Waker{Wake: func(tenant string, _ int64, _ *engine.Page) {
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

// together calls fn n times at once.
func together(n int, fn func(i int) error) error {
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = fn(i) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// until waits for a condition.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	ctx := testContext(t)
	for !condition() {
		if ctx.Err() != nil {
			t.Fatalf("waited in vain until %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

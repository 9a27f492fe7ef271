package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

func TestValueThatOnlyTheServerRefusesLeavesNothing(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	must(store.pool.Exec(testContext(t), "alter table millrace_default.events add check (body <> '1')"))(t)
	_, err := store.Append(testContext(t), "s", event.Any, event.Event{Type: "T"},
		event.Event{Type: "T", Body: json.RawMessage(`1`)})
	if !pgerr.Is(err, "23514") {
		t.Errorf("error %v, want check_violation", err)
	}
	if n := countEvents(t, store.tenant); n != 0 {
		t.Errorf("%d events", n)
	}
	if r := mustAppend(t, store.tenant, "s", event.NoStream, someEvents(1)...); r.Version != 1 {
		t.Errorf("version %d", r.Version)
	}
}

func TestMissingHeadersAndIDsAreStoredAsNull(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	full := event.Event{Type: "T", Headers: map[string]string{"h": ""}, CausationID: "c", CorrelationID: "d"}
	mustAppend(t, store.tenant, "s", event.Any, event.Event{Type: "T"}, full)
	nulls := "select count(*) from millrace_default.events where headers is null and causation_id is null and correlation_id is null"
	if n := one[int](t, store, nulls); n != 1 {
		t.Errorf("%d events without headers and ids, want 1", n)
	}
}

func TestStatementCacheDoesNotGrowWithTenants(t *testing.T) {
	t.Parallel()
	store := newStore(t, connections(1))
	cached := func(schema string) int {
		return one[int](t, store, "select count(*) from pg_prepared_statements where strpos(statement, $1) > 0",
			sqltext.Name(schema))
	}
	for i := range 3 * preparedTenants {
		tenant := newTenant(t, store, fmt.Sprint(i))
		for range 2 { // from the first success on it is known that there is such a tenant
			mustAppend(t, tenant, "s", event.Any, someEvents(1)...)
		}
		collect(t, tenant.ReadStream(testContext(t), "s", 1))
		// The default tenant came first.
		if want := i+1 < preparedTenants; cached(tenant.schema) > 1 || cached(tenant.schema) > 0 != want {
			t.Errorf("tenant %d: %d statements are cached", i, cached(tenant.schema))
		}
	}
}

func TestNotificationIsSentAfterPreparedStatementsAreDiscarded(t *testing.T) {
	t.Parallel()
	store := newStore(t, connections(1))
	for range 2 {
		noError(t, store.notify.send([]string{"default"}))
		if n := one[int](t, store, "select count(*) from pg_prepared_statements where statement = $1",
			queries.Text("notify_wake")); n != 1 {
			t.Error("the notification is not prepared")
		}
		mustExec(t, store, "deallocate all")
	}
}

// Something may discard the prepared statements of a session of the pool.
func TestAppendWithATimeIsNotPrepared(t *testing.T) {
	t.Parallel()
	store := newStore(t, connections(1))
	for range 3 {
		mustAppend(t, store.tenant, "s", event.Any, event.Event{Type: "a", Time: time.Unix(1, 0)})
		mustExec(t, store, "deallocate all")
	}
}

func TestOnlyAppendsOfATransactionLookAtSynchronousCommit(t *testing.T) {
	t.Parallel()
	store := newStore(t, connections(1))
	prepared := func(looking bool) int {
		return one[int](t, store,
			`select count(*) from pg_prepared_statements where strpos(statement, 'insert into ' || $1 || '.events') > 0
			and (strpos(statement, 'synchronous_commit') > 0) = $2`, store.tenant.quoted, looking)
	}
	for range 2 {
		mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	}
	if without, with := prepared(false), prepared(true); without != 1 || with != 0 {
		t.Errorf("%d and %d appends are prepared without and with synchronous_commit, want 1 and 0", without, with)
	}
	noError(t, store.InTx(testContext(t), func(ctx context.Context, tx pgx.Tx) error {
		_, err := store.AppendTx(ctx, tx, "s", event.Any, someEvents(1)...)
		return err
	}))
	if without, with := prepared(false), prepared(true); without != 1 || with != 1 {
		t.Errorf("%d and %d appends are prepared without and with synchronous_commit, want 1 and 1", without, with)
	}
}

func TestAppendInASavepointWakesItsTenant(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	wakes := wakeCount(t, store)
	noError(t, store.InTx(testContext(t), func(ctx context.Context, tx pgx.Tx) error {
		savepoint, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := store.AppendTx(ctx, savepoint, "s", event.Any, someEvents(1)...); err != nil {
			return err
		}
		return savepoint.Commit(ctx)
	}))
	if n := countEvents(t, store.tenant); n != 1 || wakes("default") != 1 {
		t.Errorf("%d events, %d wakes", n, wakes("default"))
	}
}

func TestInTxWithAStatementThatFailedCommitsNothing(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	wakes := wakeCount(t, store)
	err := store.InTx(testContext(t), func(ctx context.Context, tx pgx.Tx) error {
		if _, err := store.AppendTx(ctx, tx, "s", event.Any, someEvents(3)...); err != nil {
			return err
		}
		_, _ = tx.Exec(ctx, "select 1/0")
		return nil
	})
	if err == nil || countEvents(t, store.tenant) != 0 || wakes("default") != 0 {
		t.Errorf("%d events, %d wakes, %v", countEvents(t, store.tenant), wakes("default"), err)
	}
	if acquired := store.pool.Stat().AcquiredConns(); acquired != 0 {
		t.Errorf("%d connections are not given back", acquired)
	}
}

func TestAppendTxMakesTheCommitSynchronousAgain(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	setting := func(tx pgx.Tx) (s string) {
		t.Helper()
		noError(t, tx.QueryRow(ctx, "show synchronous_commit").Scan(&s))
		return s
	}
	for _, c := range []struct {
		before   string
		expected event.Expected
		want     string
	}{
		{"off", event.Any, "on"}, {"off", event.NoStream.WithKey("keyed"), "on"}, {"local", event.Any, "local"},
		{"remote_apply", event.Any, "remote_apply"},
	} {
		noError(t, store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "set local synchronous_commit = "+c.before); err != nil {
				return err
			}
			key, _ := c.expected.Key()
			stream := strings.Join([]string{c.before, key}, "-")
			if _, err := store.AppendTx(ctx, tx, stream, c.expected, someEvents(1)...); err != nil {
				return err
			}
			if got := setting(tx); got != c.want {
				t.Errorf("synchronous_commit was %s and is %s after an append, want %s", c.before, got, c.want)
			}
			return nil
		}))
	}
	// Control: a transaction that appends nothing stays as it was set.
	noError(t, store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local synchronous_commit = off"); err != nil {
			return err
		}
		if _, err := store.AppendTx(ctx, tx, "s", event.Exact(7), someEvents(1)...); !errors.Is(err,
			event.ErrVersionConflict) {
			return err
		}
		if got := setting(tx); got != "off" {
			t.Errorf("synchronous_commit is %s though nothing was appended", got)
		}
		return nil
	}))
}

package sqlitestore

import (
	"context"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite forgets an interrupt that comes when no statement runs. So a statement that was admitted just before its
// context ended, and begins just after the interrupt, must be interrupted again.
func TestStatementThatBeginsAfterTheInterruptIsInterrupted(t *testing.T) {
	t.Parallel()
	const long = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 30000000) select count(*) from n"
	store := newStore(t)
	ctx, cancel := context.WithCancel(testContext(t))
	tx := must(store.writer.open(ctx, 0))(t)
	defer tx.end()
	cancel()
	noError(t, tx.onConn(func(c *conn) error {
		for range 3 { // one interrupt ends one statement at most
			if _, err := c.driverConn.ExecContext(context.Background(), long, nil); !is(err, sqlite3.SQLITE_INTERRUPT) {
				t.Errorf("the statement ended with %v", err)
			}
		}
		return nil
	}))
}

// A transaction whose context has ended leaves a connection that the next one can use.
func TestInterruptsEndWithTheirTransaction(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	for range 100 {
		ctx, cancel := context.WithCancel(testContext(t))
		tx := must(store.writer.open(ctx, 0))(t)
		cancel()
		tx.end()
		mustExec(t, store, "update millrace_probe set probes = probes + 1")
	}
	if n := one[int](t, store, "select probes from millrace_probe"); n != 100 {
		t.Errorf("%d of 100 transactions are committed", n)
	}
}

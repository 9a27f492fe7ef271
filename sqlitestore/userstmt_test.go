package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
)

// kept returns how often the statements that the writer's connection keeps have run.
func (s *Store) kept(t testing.TB) map[string]int64 {
	t.Helper()
	runs := make(map[string]int64)
	session := must(s.writer.db.Conn(testContext(t)))(t)
	noError(t, session.Raw(func(driverConn any) error {
		c := driverConn.(*conn)
		for query, stmt := range c.kept.idle {
			if reflect.ValueOf(stmt.driverStmt).Elem().FieldByName("pstmt").Uint() != 0 { // a script has none
				runs[query] = status(c, stmt.driverStmt, sqlite3.SQLITE_STMTSTATUS_RUN)
			}
		}
		return nil
	}))
	noError(t, session.Close())
	return runs
}

func TestStatementsOfUsersAreParsedOnce(t *testing.T) {
	t.Parallel()
	const insert, read, prepared = "insert into model (position) values (?)", "select count(*) from model",
		"select max(position) from model"
	b := newBatcher(t, 1)
	for i := range 3 {
		noError(t, b.apply(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
			for range 2 {
				must(tx.ExecContext(ctx, insert, events[0].Position))(t)
				var n int
				noError(t, tx.QueryRowContext(ctx, read).Scan(&n))
			}
			stmt := must(tx.PrepareContext(ctx, prepared))(t)
			var last int64
			noError(t, stmt.QueryRowContext(ctx).Scan(&last))
			if last != events[0].Position {
				t.Errorf("the last position is %d, want %d", last, events[0].Position)
			}
			return nil // the statement is closed with the transaction
		}, limit))
		mustAppend(t, b.store.tenant, "s", event.Any, someEvents(1)...)
		noError(t, b.store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, insert, 0)
			return err
		}))
		want := map[string]int64{insert: 3 * int64(i+1), read: 2 * int64(i+1), prepared: int64(i + 1)}
		if got := b.store.kept(t); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("runs %v, want %v", got, want)
		}
	}
	b.holds(9, 3)
}

// A statement in use is not used again at the same time.
func TestStatementsOfTheSameTextDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	const query = "select position from model where position >= ? order by position"
	b := newBatcher(t, 20)
	noError(t, b.apply(record, limit))
	for range 2 { // the second time, the statement is kept
		noError(t, b.store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
			stmt := must(tx.PrepareContext(ctx, query))(t)
			var open []*sql.Rows
			for first := range 3 {
				open = append(open, must(tx.QueryContext(ctx, query, first+1))(t))
			}
			open = append(open, must(stmt.QueryContext(ctx, 4))(t))
			noError(t, stmt.Close()) // its rows go on
			for n := range 10 {
				for first, rows := range open {
					var position int
					if !rows.Next() {
						t.Fatalf("rows %d end after %d: %v", first, n, rows.Err())
					}
					noError(t, rows.Scan(&position))
					if position != first+1+n {
						t.Errorf("row %d of %d: position %d", n, first, position)
					}
				}
			}
			for _, rows := range open {
				noError(t, rows.Close())
			}
			return nil
		}))
	}
	if kept := b.store.kept(t); len(kept) != 2 { // and the insert of record
		t.Errorf("kept: %v", kept)
	}
}

func TestFewStatementsOfUsersAreKept(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 1)
	const often = "select 1"
	noError(t, b.store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
		for i := range 5 * keptStatements {
			for _, query := range []string{often, fmt.Sprintf("insert into model (position) values (%d)", i)} {
				must(tx.ExecContext(ctx, query))(t)
			}
		}
		must(tx.ExecContext(ctx, "select '"+strings.Repeat("x", keptText)+"'"))(t)
		return nil
	}))
	kept := b.store.kept(t)
	if len(kept) != keptStatements || kept[often] != 5*keptStatements {
		t.Errorf("%d statements are kept, the frequent one ran %d times", len(kept), kept[often])
	}
	for query := range kept {
		if len(query) > keptText {
			t.Errorf("a text of %d bytes is kept", len(query))
		}
	}
}

// What is kept does not outlive the tables that it was made for, and a script is run whole each time.
func TestKeptStatementsFollowTheSchema(t *testing.T) {
	t.Parallel()
	const insert, read = "insert into notes values (1)", "select * from notes"
	b := newBatcher(t, 1)
	ctx := testContext(t)
	in := func(fn func(tx *sql.Tx) error) error {
		return b.store.InTx(ctx, func(_ context.Context, tx *sql.Tx) error { return fn(tx) })
	}
	columns := func(want ...string) {
		t.Helper()
		noError(t, in(func(tx *sql.Tx) error {
			rows := must(tx.Query(read))(t)
			if got := must(rows.Columns())(t); fmt.Sprint(got) != fmt.Sprint(want) || !rows.Next() {
				t.Errorf("columns %v, want %v: %v", got, want, rows.Err())
			}
			return rows.Close()
		}))
	}
	missing := func(when string) {
		t.Helper()
		err := b.apply(func(ctx context.Context, tx *sql.Tx, _ []event.Envelope) error {
			_, err := tx.Exec(insert)
			return err
		}, limit)
		if f := faultOf(t, err); f.Class != faults.MissingObject ||
			!strings.Contains(err.Error(), "no such table: notes") {
			t.Errorf("%s: %v", when, err)
		}
	}
	undone := errors.New("undone")
	const script = "create table notes (a); insert into notes values (2)"
	if err := in(func(tx *sql.Tx) error {
		must(tx.Exec(script))(t)
		must(tx.Exec(insert))(t)
		return undone
	}); !errors.Is(err, undone) {
		t.Error(err)
	}
	missing("after a rollback")
	noError(t, in(func(tx *sql.Tx) error {
		must(tx.Exec(script))(t)
		must(tx.Exec(insert))(t)
		return nil
	}))
	if n := one[int](t, b.store, "select count(*) from notes"); n != 2 {
		t.Errorf("%d rows after the script", n)
	}
	columns("a")
	columns("a")
	other := openStore(t, b.store.path, Options{})
	mustExec(t, other, "alter table notes add column b")
	columns("a", "b")
	mustExec(t, other, "drop table notes")
	missing("after another process dropped the table")
	b.holds(0, 0)
}

func TestStatementThatFailedWorksAgain(t *testing.T) {
	t.Parallel()
	const insert = "insert into model (at, position) values (?, ?)"
	b := newBatcher(t, 1)
	for range 2 {
		noError(t, b.store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
			must(tx.Exec("delete from model"))(t)
			must(tx.Exec(insert, 7, 1))(t)
			if _, err := tx.Exec(insert, 7, 1); !is(err, sqlite3.SQLITE_CONSTRAINT) {
				t.Errorf("the second row: %v", err)
			}
			if _, err := tx.Exec(insert, 7); err == nil {
				t.Error("one value was enough")
			}
			must(tx.Exec(insert, 8, 1))(t)
			return nil
		}))
	}
	b.holds(2, 0)
}

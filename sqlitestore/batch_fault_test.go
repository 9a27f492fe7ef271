package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// misdeed is what a handler does wrong after it has recorded its events, and the expected result.
type misdeed struct {
	fail  func(ctx context.Context, tx *sql.Tx) error
	class faults.Class
	says  string
	is    error
	// returned reports that the error is the handler's own, also to a breaker.
	returned bool
}

// statements run one after the other and return the errors.
func statements(list ...string) func(ctx context.Context, tx *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) (err error) {
		for _, statement := range list {
			_, failed := tx.ExecContext(ctx, statement)
			err = errors.Join(err, failed)
		}
		return err
	}
}

// swallowed ignores the error.
func swallowed(fail func(ctx context.Context, tx *sql.Tx) error) func(ctx context.Context, tx *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_ = fail(ctx, tx)
		return nil
	}
}

// hidden returns the error without wrapping it.
func hidden(fail func(ctx context.Context, tx *sql.Tx) error) func(ctx context.Context, tx *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error { return fmt.Errorf("no: %v", fail(ctx, tx)) }
}

// replaced returns an error that does not mention it.
func replaced(fail func(ctx context.Context, tx *sql.Tx) error) func(ctx context.Context, tx *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_ = fail(ctx, tx)
		return errors.New("boom")
	}
}

// damagedIndex reads a table of the handler's that is damaged: its index of texts lacks a row. The transaction goes on.
var damagedIndex = statements("create virtual table texts using fts5 (a, content = 'strict')",
	"insert into strict values (5)",
	"insert into texts (texts, rank) values ('integrity-check', 1)")

// full fills the disk: SQLite rolls the transaction back.
var full = statements("pragma max_page_count = 1", "insert into big values (zeroblob(10000000))")

var misdeeds = map[string]misdeed{
	"Go error": {
		func(context.Context, *sql.Tx) error { return errors.New("boom") }, faults.Handler, "boom", nil, true,
	},
	"panic": {
		func(context.Context, *sql.Tx) error { panic("boom") }, faults.Handler, "boom", projection.ErrHandlerPanic,
		true,
	},
	"end of the goroutine": {
		func(context.Context, *sql.Tx) error { runtime.Goexit(); return nil }, faults.Handler, "goroutine",
		usercode.ErrGoexit, true,
	},
	"SQL error": {statements("select json('{')"), faults.Handler, "malformed JSON", nil, true},
	"constraint": {
		statements("insert into strict values (1), (1)"), faults.Handler, "UNIQUE", nil, true,
	},
	"deferred constraint": {
		statements("insert into late values (1)"), faults.Handler, "FOREIGN KEY", nil, false,
	},
	"foreign key": {
		statements("insert into soon values (1)"), faults.Handler, "FOREIGN KEY", nil, true,
	},
	"missing table": {
		statements("insert into missing values (1)"), faults.MissingObject, "no such table", nil, false,
	},
	"missing column": {
		statements("select missing from strict"), faults.MissingObject, "no such column", nil, false,
	},
	"missing column of insert": {
		statements("insert into strict (missing) values (1)"), faults.MissingObject, "missing", nil, false,
	},
	"missing function": {statements("select missing(1)"), faults.MissingObject, "no such function", nil, false},
	"missing table, hidden": {
		hidden(statements("insert into missing values (1)")), faults.MissingObject, "no such table", nil, false,
	},
	"full disk":         {full, faults.Unclear, "full", nil, false},
	"full disk, hidden": {hidden(full), faults.Unclear, "full", nil, false},
	"full disk, swallowed": {
		swallowed(full), faults.Unclear, "returned no error, but a statement of its transaction failed", nil, false,
	},
	"damaged index":         {damagedIndex, faults.Configuration, "malformed", ErrCorrupt, false},
	"damaged index, hidden": {replaced(damagedIndex), faults.Configuration, "malformed", ErrCorrupt, false},
	"read only": {
		statements("pragma query_only = 1", "insert into strict values (1)"), faults.Handler,
		"query_only was left on", ErrTxControl, false,
	},
	"read only, replaced": {
		replaced(statements("pragma query_only = 1", "insert into strict values (1)")), faults.Handler, "boom",
		ErrTxControl, false,
	},
	"archived tenant": {
		func(context.Context, *sql.Tx) error { return tenancy.ErrArchived }, faults.MissingObject, "archived", nil,
		true,
	},
	"unknown tenant": {
		func(context.Context, *sql.Tx) error { return tenancy.ErrUnknown }, faults.Handler, "tenant", nil, true,
	},
	"lease of another": {
		func(context.Context, *sql.Tx) error { return projection.ErrLeaseLost }, faults.Handler, "lease", nil,
		true,
	},
	"commit": {
		func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }, faults.Handler, "commit refused",
		ErrTxControl, true,
	},
	"commit, swallowed": {
		func(_ context.Context, tx *sql.Tx) error { _ = tx.Commit(); return nil }, faults.Handler, "was ended",
		ErrTxControl, false,
	},
	"commit by SQL": {statements("commit"), faults.Handler, "commit refused", ErrTxControl, true},
	"commit by SQL, swallowed": {
		swallowed(statements("commit", "insert into strict values (7)")), faults.Handler, "was ended",
		ErrTxControl, false,
	},
	"rollback": {
		func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }, faults.Handler, "was ended",
		ErrTxControl, false,
	},
	"rollback and begin": {
		swallowed(statements("rollback", "begin", "insert into strict values (7)")), faults.Handler, "was ended",
		ErrTxControl, false,
	},
	"rollback by a constraint": {
		swallowed(statements("insert or rollback into strict values (1), (1)")), faults.Handler, "was ended",
		ErrTxControl, false,
	},
	"version of the schema": {
		statements("pragma user_version = 77"), faults.Handler, "user_version", ErrTxControl, false,
	},
	"context of a write": {
		swallowed(func(ctx context.Context, tx *sql.Tx) error { return shortWrite(ctx, tx, "strict") }),
		faults.Handler, "SQLite rolled back", context.DeadlineExceeded, false,
	},
	"append to an unknown":  {nil, faults.Handler, "tenant", tenancy.ErrUnknown, true},
	"error of another file": {otherFile, faults.Handler, "malformed JSON", nil, true},
}

// shortWrite writes until a context of its own ends, so that SQLite rolls the transaction back. A context that ends
// before its statement begins changes nothing.
func shortWrite(ctx context.Context, tx *sql.Tx, table string) (err error) {
	for d := 50 * time.Millisecond; ; d *= 2 {
		short, cancel := context.WithTimeout(ctx, d)
		_, err = tx.ExecContext(short, "insert into "+table+" "+steps)
		cancel()
		if _, ended := tx.ExecContext(ctx, "select 1"); ended != nil {
			return err
		}
	}
}

// otherFile returns the error of another database.
func otherFile(ctx context.Context, _ *sql.Tx) error {
	db, err := sql.Open("sqlite", ":memory:")
	if err == nil {
		_, err = db.ExecContext(ctx, "select json('{')")
	}
	return errors.Join(err, db.Close())
}

func newFaulty(t *testing.T) *batcher {
	t.Helper()
	b := newBatcher(t, 3)
	for _, table := range []string{"create table strict (a integer unique)", "create table big (a blob)",
		"create table soon (a integer references strict (a))",
		"create table late (a integer references strict (a) deferrable initially deferred)"} {
		mustExec(t, b.store, table)
	}
	return b
}

func TestHandlerThatFailsCommitsNothingAndIsClassified(t *testing.T) {
	t.Parallel()
	for name, f := range misdeeds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFaulty(t)
			if f.fail == nil {
				f.fail = func(ctx context.Context, tx *sql.Tx) error {
					_, err := must(b.store.ForTenant("nobody"))(t).AppendTx(ctx, tx, "s", event.Any, someEvents(1)...)
					return err
				}
			}
			err := b.apply(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
				if err := record(ctx, tx, events); err != nil {
					return err
				}
				return f.fail(ctx, tx)
			}, limit)
			fault := faultOf(t, err)
			if fault.Class != f.class || fault.Probe != (f.class == faults.Unclear) || fault.Returned != f.returned ||
				!strings.Contains(fault.Error(), f.says) || f.is != nil && !errors.Is(err, f.is) {
				t.Errorf("%+v, %v", fault, err)
			}
			if (fault.Stack != "") != (name == "panic") {
				t.Errorf("stack %q", fault.Stack)
			}
			b.holds(0, 0)
			if n := one[int](t, b.store, "select count(*) from strict"); n != 0 {
				t.Errorf("%d rows", n)
			}
			// The next batch is not affected.
			noError(t, b.apply(record, limit))
			b.holds(3, 3)
		})
	}
}

// SQLite undoes the statement that failed, and the handler decides about the rest.
func TestHandlerMayIgnoreAStatementThatFails(t *testing.T) {
	t.Parallel()
	b := newFaulty(t)
	noError(t, b.apply(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
		_ = statements("insert into strict values (1), (1)", "insert into missing values (1)", "savepoint a",
			"insert into strict values (3)", "rollback to a", "release a")(ctx, tx)
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		_, _ = tx.ExecContext(short, long)
		return record(ctx, tx, events)
	}, limit))
	b.holds(3, 3)
	if n := one[int](t, b.store, "select count(*) from strict"); n != 0 {
		t.Errorf("%d rows", n)
	}
	// An error that has nothing to do with the statement is the handler's.
	mustAppend(t, b.store.tenant, "s", event.Any, someEvents(1)...)
	err := b.apply(func(ctx context.Context, tx *sql.Tx, _ []event.Envelope) error {
		_ = statements("insert into missing values (1)")(ctx, tx)
		return errors.New("boom")
	}, limit)
	if fault := faultOf(t, err); fault.Class != faults.Handler || !fault.Returned {
		t.Errorf("%+v", fault)
	}
}

func TestDamagedReadModelStopsItsProjection(t *testing.T) {
	t.Parallel()
	if f := classify(fmt.Errorf("wrapped: %w", corruptError(t))); f.Class != faults.Configuration ||
		!errors.Is(f, ErrCorrupt) {
		t.Errorf("%+v", f)
	}
	if f := storeFault(corruptError(t)); f.Class != faults.Configuration || !errors.Is(f, ErrCorrupt) {
		t.Errorf("%+v", f)
	}
	// An error of another database is the handler's.
	if class := returnedClass(corruptError(t)); class != faults.Handler {
		t.Errorf("class %s", class)
	}
}

func TestErrorsOfTheStoreAreClassified(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want faults.Class
		is   error
	}{
		"missing table":  {sqliteError(t, "select * from millrace_missing"), faults.Configuration, ErrNotMigrated},
		"anything":       {sqliteError(t, "select json('{')"), faults.Infrastructure, nil},
		"read only":      {sqliteError(t, "pragma query_only = 1; create table a (b)"), faults.Infrastructure, nil},
		"closed":         {ErrClosed, faults.Infrastructure, nil},
		"deadline":       {context.DeadlineExceeded, faults.Infrastructure, nil},
		"cancelled":      {context.Canceled, faults.Infrastructure, nil},
		"too new":        {ErrSchemaTooNew, faults.Configuration, nil},
		"not migrated":   {ErrNotMigrated, faults.Configuration, nil},
		"lease lost":     {projection.ErrLeaseLost, faults.LeaseLost, nil},
		"unknown tenant": {tenancy.ErrUnknown, faults.Configuration, nil},
		"archived":       {tenancy.ErrArchived, faults.Configuration, nil},
		"restored":       {tenancy.ErrRestored, faults.Configuration, nil},
	} {
		fault := storeFault(fmt.Errorf("wrapped: %w", c.err))
		if fault.Class != c.want || !errors.Is(fault, c.err) || c.is != nil && !errors.Is(fault, c.is) {
			t.Errorf("%s: %+v", name, fault)
		}
	}
	if classify(nil) != nil || storeFault(nil) != nil || wrap(nil, "x") != nil {
		t.Error("no error is a fault")
	}
}

// sqliteError returns the error of a statement in a database in memory.
func sqliteError(t *testing.T, statement string) error {
	t.Helper()
	db := must(sql.Open("sqlite", ":memory:"))(t)
	defer func() { noError(t, db.Close()) }()
	_, err := db.ExecContext(testContext(t), statement)
	if err == nil {
		t.Fatalf("%s: no error", statement)
	}
	return err
}

// corruptError returns the error of a damaged file.
func corruptError(t *testing.T) error {
	t.Helper()
	db := must(sql.Open("sqlite", ":memory:"))(t)
	db.SetMaxOpenConns(1)
	defer func() { noError(t, db.Close()) }()
	_, err := db.ExecContext(testContext(t),
		`create table t (a); pragma writable_schema = 1; update sqlite_schema set rootpage = 77; pragma writable_schema = reset; select * from t`)
	var failed *sqlite.Error
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "malformed") {
		t.Fatalf("error %v", err)
	}
	return err
}

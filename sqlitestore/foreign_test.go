package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/projection"
)

// otherProgram is a connection to the file that is not the store's.
func otherProgram(t *testing.T, store *Store) *sql.DB {
	t.Helper()
	db := must(sql.Open("sqlite", dsn(store.path, "_pragma=busy_timeout(10000)")))(t)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { noError(t, db.Close()) })
	return db
}

func TestForeignObjectsAreRefused(t *testing.T) {
	t.Parallel()
	for name, object := range map[string]struct{ create, says string }{
		"trigger": {
			"create trigger audit before insert on millrace_events begin select raise(abort, 'no'); end",
			`trigger "audit" on millrace_events`,
		},
		"swallowing": {
			"create trigger few before insert on millrace_events begin select raise(ignore); end",
			`trigger "few" on millrace_events`,
		},
		"head": {
			"create trigger heads after update on Millrace_Tenants begin select raise(ignore); end",
			`trigger "heads" on `,
		},
		"reserved": {
			"create trigger millrace_mine after insert on millrace_events begin select 1; end", "millrace_mine",
		},
		"quoted": {
			`create trigger "a""b" after insert on millrace_events begin select 1; end`,
			`trigger "a\"b" on millrace_events`,
		},
		"unique": {"create unique index once on millrace_events (type, id)", `index "once" on millrace_events`},
		"partial": {
			"create index some on millrace_events (type) where json(body) is not null",
			`index "some" on millrace_events`,
		},
		"expression": {
			"create index computed on millrace_events (json(headers))", `index "computed" on millrace_events`,
		},
		"foreign key": {
			"create table refs (n integer references millrace_leases (checkpoint))",
			`foreign key "refs" on millrace_leases`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBatcher(t, 2)
			other := otherProgram(t, b.store)
			must(other.Exec(object.create))(t)
			ctx := testContext(t)
			_, appendErr := b.store.Append(ctx, "s", event.Any, someEvents(1)...)
			_, openErr := Open(ctx, b.store.path, Options{})
			lent := b.store.InTx(ctx, func(context.Context, *sql.Tx) error { return nil })
			tx := must(other.Begin())(t)
			_, ownErr := b.store.AppendTx(ctx, tx, "s", event.Any, someEvents(1)...)
			noError(t, tx.Rollback())
			for what, err := range map[string]error{"append": appendErr, "Open": openErr, "InTx": lent,
				"AppendTx": ownErr} {
				if !errors.Is(err, ErrForeignObject) || !strings.Contains(err.Error(), object.says) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if f := faultOf(t, b.apply(record, limit)); f.Class != faults.Configuration ||
				!errors.Is(f, ErrForeignObject) {
				t.Errorf("batch: class %s: %v", f.Class, f)
			}
			found := must(Diagnose(ctx, b.store.path, Options{}))(t)
			if len(found) != 1 || found[0].Check != "schema" || !strings.Contains(found[0].Problem, object.says) {
				t.Errorf("findings %+v", found)
			}
			if n := len(all(t, b.store.tenant)); n != 2 {
				t.Errorf("read %d events", n)
			}
			kind, dropped, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(object.create, "create "), "unique "),
				" ")
			dropped, _, _ = strings.Cut(dropped, " ")
			must(other.Exec("drop " + kind + " " + dropped))(t)
			mustAppend(t, b.store.tenant, "s", event.Any, someEvents(1)...)
			openStore(t, b.store.path, Options{})
			noError(t, b.apply(record, limit))
			b.holds(3, 3)
		})
	}
}

// What cannot change a write of the store is the user's own affair.
func TestObjectsThatChangeNoWriteOfTheStoreAreAllowed(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 2)
	other := otherProgram(t, b.store)
	for _, statement := range []string{
		"create index by_type on millrace_events (type, id)",
		"create view recent as select * from millrace_events order by id desc limit 10",
		"create trigger mine after insert on model begin select 1; end",
		"create trigger through instead of insert on recent begin select 1; end",
		"create unique index once on model (position)",
		"create table children (event integer references millrace_events (id))",
		"create table others (event integer references Millrace_Events)",
	} {
		must(other.Exec(statement))(t)
		mustAppend(t, b.store.tenant, "s", event.Any, someEvents(1)...)
		openStore(t, b.store.path, Options{})
	}
	noError(t, b.apply(record, limit))
	b.holds(9, 9)
}

// left are statements whose effects would change what the store's statements do.
var left = map[string]struct {
	statement string
	is        error
	says      string
}{
	"trigger": {
		"create trigger t after insert on millrace_events begin select 1; end", ErrForeignObject,
		`trigger "t" on millrace_events`,
	},
	"unique index": {
		"create unique index i on millrace_events (created_at, id)", ErrForeignObject, `index "i" on millrace_events`,
	},
	"temporary table": {
		"create temp table millrace_events (n int)", ErrForeignObject, `temporary table "millrace_events"`,
	},
	"temporary leases": {
		"create table temp.millrace_leases as select * from main.millrace_leases", ErrForeignObject,
		`temporary table "millrace_leases"`,
	},
	"temporary view": {
		"create temp view millrace_tenants as select 1", ErrForeignObject, `temporary view "millrace_tenants"`,
	},
	"temporary trigger": {
		"create temp trigger t after insert on main.millrace_events begin select 1; end", ErrForeignObject,
		`temporary trigger "t" on millrace_events`,
	},
	"upper case": {"pragma case_sensitive_like = 1; create trigger t after insert on Millrace_Events begin select 1; end", ErrForeignObject,
		`trigger "t" on Millrace_Events`},
	"temporary upper case": {"pragma case_sensitive_like = 1; create temp table Millrace_Events (n int)",
		ErrForeignObject,
		`temporary table "Millrace_Events"`},
	"query_only": {"pragma query_only = 1", ErrTxControl, "query_only was left on"},
}

func TestHandlerThatLeavesObjectsOnTheStoresTablesFails(t *testing.T) {
	t.Parallel()
	handlersThatLeave(t, limit, func(context.Context) {})
}

// A handler that returns after its time limit is checked as well.
func TestHandlerThatLeavesObjectsAtItsTimeLimitFails(t *testing.T) {
	t.Parallel()
	handlersThatLeave(t, 100*time.Millisecond, func(ctx context.Context) { <-ctx.Done() })
}

// handlersThatLeave runs batches whose handlers have a time limit, leave something, and then wait.
func handlersThatLeave(t *testing.T, timeout time.Duration, wait func(ctx context.Context)) {
	for name, l := range left {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBatcher(t, 2)
			err := b.apply(func(ctx context.Context, tx *sql.Tx, _ []event.Envelope) error {
				err := statements("insert into model (position) values (1)", l.statement)(ctx, tx)
				if err == nil {
					wait(ctx)
				}
				return err
			}, timeout)
			if f := faultOf(t, err); f.Class != faults.Handler || !errors.Is(err, l.is) ||
				!strings.Contains(err.Error(), l.says) {
				t.Errorf("class %s: %v", f.Class, err)
			}
			b.holds(0, 0)
			noError(t, b.apply(record, limit))
			b.holds(2, 2)
		})
	}
}

// An append within such a transaction is refused, or not committed.
func TestTransactionThatLeavesObjectsOnTheStoresTablesFails(t *testing.T) {
	t.Parallel()
	for name, l := range left {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			err := store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
				if err := statements(l.statement)(ctx, tx); err != nil {
					return err
				}
				_, _ = store.AppendTx(ctx, tx, "s", event.Any, someEvents(1)...)
				return nil
			})
			if !errors.Is(err, l.is) || !strings.Contains(err.Error(), l.says) {
				t.Errorf("error %v", err)
			}
			if r := mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...); r.Positions[0] != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// The store does not see temporary objects of another program's connection before AppendTx uses it.
func TestAppendTxMeetsTemporaryTriggers(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustExec(t, store, "create table once (n int unique)")
	for table, statement := range map[string]string{"millrace_events": "insert_event",
		"millrace_streams": "set_stream_version"} {
		tx := must(otherProgram(t, store).Begin())(t)
		must(tx.Exec(fmt.Sprintf("create temp trigger t before insert on main.%s begin select raise(ignore); end",
			table)))(t)
		_, err := store.AppendTx(testContext(t), tx, "s", event.Any, someEvents(1)...)
		if !errors.Is(err, ErrForeignObject) || !strings.Contains(err.Error(), statement) {
			t.Errorf("%s: %v", table, err)
		}
		noError(t, tx.Rollback())
	}
	tx := must(otherProgram(t, store).Begin())(t)
	must(tx.Exec("create temp trigger t before insert on main.millrace_events begin insert into once values (1), (1); end"))(t)
	if _, err := store.AppendTx(testContext(t), tx, "s", event.Any, someEvents(1)...); errors.Is(err, ErrCorrupt) ||
		err == nil {
		t.Errorf("unique violation in a table of the user: %v", err)
	}
	noError(t, tx.Rollback())
	mustAppend(t, store.tenant, "s", event.NoStream, someEvents(1)...)
}

// violates makes each event of the type bad violate a constraint at the commit. The trigger has a name of the store's.
func violates(t *testing.T, store *Store) {
	t.Helper()
	mustExec(t, store, "create table parent (id integer primary key)")
	mustExec(t, store, "create table child (parent integer references parent deferrable initially deferred)")
	mustExec(t, store,
		"create trigger millrace_events_insert_closed after insert on millrace_events when new.type = 'bad' begin insert into child values (1); end")
}

// Whatever rides in a batch, the batch and the other riders succeed. Nothing counts as a failure of the handler.
func TestRiderWhoseCommitIsRefusedFailsAlone(t *testing.T) {
	t.Parallel()
	r := newRiders(t)
	violates(t, r.store)
	runs := 0
	noError(t, r.apply(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
		runs++
		if runs == 1 {
			r.start(testContext(t), r.store.tenant, "bad", event.Any.WithKey("k"), event.Event{Type: "bad"})
			r.startSome(3)
		}
		return record(ctx, tx, events)
	}, limit))
	r.made(3, 1)
	if a := r.answers["bad"]; a.err == nil || !strings.Contains(a.err.Error(), "FOREIGN KEY") {
		t.Errorf("%+v", a)
	}
	if runs != 2 {
		t.Errorf("the handler ran %d times, want 2: without riders after the first", runs)
	}
	r.holds(1, 1)
}

func TestAppendWhoseCommitIsRefusedLeavesItsGroupAlone(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	violates(t, store)
	commits := countCommits(t, store)
	const n = 6
	wait := queue(t, store, n, func(i int) error {
		e := event.Event{Type: "good"}
		if i == 2 {
			e.Type = "bad"
		}
		_, err := store.Append(testContext(t), fmt.Sprint("s", i), event.NoStream.WithKey(fmt.Sprint(i)), e)
		if refused := err != nil && strings.Contains(err.Error(), "FOREIGN KEY"); refused != (i == 2) {
			return fmt.Errorf("append %d: %w", i, err)
		}
		return nil
	})
	noError(t, wait())
	if events := all(t, store.tenant); len(events) != n-1 || commits.Load() != n-1 {
		t.Errorf("%d events in %d commits", len(events), commits.Load())
	}
	// Later appends share a transaction again.
	before := commits.Load()
	wait = queue(t, store, n, func(i int) error {
		_, err := store.Append(testContext(t), fmt.Sprint("t", i), event.NoStream, someEvents(1)...)
		return err
	})
	noError(t, wait())
	if c := commits.Load() - before; c != 1 {
		t.Errorf("%d commits, want 1", c)
	}
}

// Between the two runs of a beginning, another process may insert the rows of the version. Then nothing begins any
// more.
func TestBeginningThatIsRepeatedDecidesAgain(t *testing.T) {
	t.Parallel()
	r := newRiders(t)
	violates(t, r.store)
	runs := 0
	other := newWaitingAppend(eventlog.Append{}, func(ctx context.Context, tx *sql.Tx) (event.Appended, error) {
		runs++
		if runs > 1 {
			_, err := tx.ExecContext(ctx,
				`insert into millrace_projections (tenant, name, partition, partitions, slot_from, slot_to, token)
				select t.id, n.value, 0, 1, 0, 1 << 28, n.value from millrace_tenants t cross join json_each('["q", "q@2"]') n where t.name = 'default'`)
			return event.Appended{}, err
		}
		_, err := tx.ExecContext(ctx, "insert into child values (1)")
		return event.Appended{}, err
	})
	later := engine.NewProjection{Tenant: projection.DefaultTenant, Name: "q@2", Timeout: limit}
	later.Swap = handler.NewHook(func(ctx context.Context, tx *sql.Tx) error {
		if runs == 0 {
			r.group.Go(func() {
				if _, err := r.store.writer.append(testContext(t), other); err != nil {
					t.Error(err)
				}
			})
			until(t, "the append waits", func() bool { return r.store.waitingAppends() == 1 })
		}
		var earlier int
		if err := tx.QueryRowContext(ctx,
			"select count(*) from millrace_projections where name = 'q'").Scan(&earlier); err != nil {
			return err
		}
		if earlier > 0 {
			t.Error("the hook ran though the tenant has an earlier version")
		}
		return nil
	})
	must(r.store.plane().Ensure(testContext(t), []engine.NewProjection{later}))(t)
	r.group.Wait()
	if runs != 2 {
		t.Errorf("the append ran %d times", runs)
	}
}

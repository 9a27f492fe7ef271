package sqlitestore

import (
	"database/sql/driver"
	"errors"
	"reflect"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// A poll reads the tenant's row together with its events.
func TestTailNoticesWhatBecomesOfItsTenant(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	other := newTenant(t, store, "other")
	mustAppend(t, other, "s", event.Any, someEvents(20)...)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(3)...)
	tail := store.port().TailPoller(projection.DefaultTenant)
	must(tail.Poll(ctx))(t)

	for _, more := range []int{0, 4} { // without new events, and with some
		if more > 0 {
			mustAppend(t, store.tenant, "s", event.Any, someEvents(more)...)
		}
		mustExec(t, store, "update millrace_tenants set deleting = 1 where name = 'default'")
		// Control: only a poller that reads events fails.
		must(store.port().TailPoller(projection.DefaultTenant).Poll(ctx))(t)
		if u, err := tail.Poll(ctx); !errors.Is(err, tenancy.ErrDropping) || len(u.Events) > 0 {
			t.Errorf("deleting, %d events more: %v, %v", more, u, err)
		}
		mustExec(t, store, "update millrace_tenants set deleting = 0 where name = 'default'")
		must(tail.Poll(ctx))(t)
	}

	// The name now belongs to a tenant whose events follow in the file.
	mustExec(t, store, "update millrace_tenants set name = 'former' where name = 'default'")
	if _, err := tail.Poll(ctx); !errors.Is(err, tenancy.ErrUnknown) {
		t.Errorf("without a tenant: %v", err)
	}
	mustExec(t, store, "update millrace_tenants set name = 'default' where name = 'former'")
	must(tail.Poll(ctx))(t)
	mustExec(t, store, "update millrace_tenants set name = 'former' where name = 'default'")
	mustExec(t, store, "update millrace_tenants set name = 'default' where name = 'other'")
	if u := must(tail.Poll(ctx))(t); u.From != 20 || u.Mark != 20 || len(u.Events) > 0 {
		t.Errorf("another tenant: %+v", u)
	}
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	if u := must(tail.Poll(ctx))(t); u.Mark != 21 || len(u.Events) != 1 || u.Events[0].Position != 21 {
		t.Errorf("after an append to it: %+v", u)
	}
	mustExec(t, store, "update millrace_tenants set head = 1 where name = 'default'")
	if u := must(tail.Poll(ctx))(t); u.Mark != 1 || len(u.Events) > 0 {
		t.Errorf("after the head fell: %+v", u)
	}
}

// SQLite plans a statement anew at each run if a value that is bound to it might change the plan. A read of a few
// events then takes twice as long.
func TestReadsAreNotPlannedAnew(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	store.readers.SetMaxOpenConns(1)
	read := func(round int64) {
		mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
		for _, types := range [][]string{nil, {"T"}} {
			r := engine.ReadRange{After: round, UpTo: round + 1, Limit: int(10 + round), Types: types}
			must(store.port().Read(ctx, projection.DefaultTenant, r))(t)
			r.Share = partition.Share{Range: partition.Range{To: 5}}
			must(store.port().Read(ctx, projection.DefaultTenant, r))(t)
			for _, stream := range []string{"", "s"} {
				for _, err := range store.ReadAll(ctx, event.ReadOptions{After: round, Types: types, Stream: stream}) {
					noError(t, err)
				}
			}
		}
	}
	tail := store.port().TailPoller(projection.DefaultTenant)
	for round := range int64(4) {
		must(tail.Poll(ctx))(t)
		read(round)
	}
	session := must(store.readers.Conn(ctx))(t)
	noError(t, session.Raw(func(driverConn any) error {
		c := driverConn.(*conn)
		for query, stmt := range c.prepared {
			if status(c, stmt, sqlite3.SQLITE_STMTSTATUS_REPREPARE) > 1 { // the first is planned anew after Migrate
				t.Errorf("planned anew: %s", query)
			}
		}
		if len(c.prepared) < 7 {
			t.Errorf("%d statements are prepared", len(c.prepared))
		}
		// Control: a limit that is a parameter alone.
		stmt := must(c.driverConn.PrepareContext(ctx,
			"select id from millrace_events where id > ?1 limit ?2"))(t).(driverStmt)
		for i := range int64(2) {
			must(stmt.ExecContext(ctx, []driver.NamedValue{{Ordinal: 1, Value: i}, {Ordinal: 2, Value: 5 + i}}))(t)
		}
		if status(c, stmt, sqlite3.SQLITE_STMTSTATUS_REPREPARE) == 0 {
			t.Error("control: the statement was not planned anew")
		}
		return stmt.Close()
	}))
	noError(t, session.Close())
}

// status returns a counter of SQLite for a statement of a connection. It calls SQLite with what the driver does not
// export.
func status(c *conn, stmt driverStmt, counter int32) int64 {
	handle := reflect.ValueOf(stmt).Elem().FieldByName("pstmt").Uint()
	field := reflect.ValueOf(c.driverConn).Elem().FieldByName("tls")
	tls := reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem()
	call := reflect.ValueOf(sqlite3.Xsqlite3_stmt_status)
	return call.Call([]reflect.Value{tls, reflect.ValueOf(uintptr(handle)), reflect.ValueOf(counter),
		reflect.ValueOf(int32(0))})[0].Int()
}

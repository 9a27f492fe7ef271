package kit

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
	"github.com/millrace-go/millrace/tenancy"
)

// SQLite is the kind of sqlitestore.Store. Its places are paths of files, with the number of connections as a query if
// it is not the default.
var SQLite = &Kind{
	Name: "sqlitestore",
	Types: map[string]reflect.Type{
		"Store": reflect.TypeFor[*sqlitestore.Store](), "Tenant": reflect.TypeFor[*sqlitestore.Tenant](),
	},
	Place: func(t *testing.T, connections int) string {
		place := url.URL{Path: filepath.Join(t.TempDir(), "store.db")}
		if connections > 0 {
			place.RawQuery = "connections=" + strconv.Itoa(connections)
		}
		return place.String()
	},
	Open: openSQLite,
	Faults: map[string]Fault{
		"SQL error":              {"malformed JSON", Exec("select json('{')")},
		"constraint":             {"UNIQUE constraint failed", Exec("insert into strict values (1), (1)")},
		"deferred constraint":    {"FOREIGN KEY constraint failed", Exec("insert into late values (1)")},
		"timeout in a statement": {"timeout passed", Exec(forever)},
		"end of its transaction": {"commit refused", func(ctx context.Context, tx Tx) error { return tx.Commit(ctx) }},
		"commit by SQL":          {"commit refused", Exec("commit")},
		"rollback by SQL, hidden": {"transaction belongs to the store", func(ctx context.Context, tx Tx) error {
			return errors.Join(tx.Exec(ctx, "rollback"), tx.Exec(ctx, "begin"))
		}},
	},
	Outages: map[string]func(ctx context.Context, tx Tx) error{
		"disk full": fillDisk,
		"disk full, wrapped without %w": func(ctx context.Context, tx Tx) error {
			return fmt.Errorf("no: %v", fillDisk(ctx, tx))
		},
		"disk full, swallowed": func(ctx context.Context, tx Tx) error {
			_ = fillDisk(ctx, tx)
			return nil
		},
		"read only": func(ctx context.Context, tx Tx) error {
			return errors.Join(tx.Exec(ctx, "pragma query_only = 1"), tx.Exec(ctx, "insert into strict values (1)"),
				tx.Exec(ctx, "pragma query_only = 0"))
		},
	},
}

// forever is a query that takes hours.
const forever = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 1e12) select count(*) from n"

// fillDisk meets a full disk: the file must not grow, and does not fit. SQLite rolls the transaction back.
func fillDisk(ctx context.Context, tx Tx) error {
	if err := tx.Exec(ctx, "pragma max_page_count = 1"); err != nil {
		return err
	}
	return tx.Exec(ctx, "insert into big values (zeroblob(100000000))")
}

// SQLiteStore is a sqlitestore.Store as tests see it. own are connections that the store does not know.
type SQLiteStore struct {
	*sqlitestore.Store
	own *sql.DB
}

// SQLiteTx is a transaction of SQLite as tests see it.
type SQLiteTx struct{ *sql.Tx }

type sqliteTenant struct{ *sqlitestore.Tenant }

func openSQLite(ctx context.Context, place string, types *eventtype.Types,
	around ...event.AppendMiddleware) (Store, error) {
	at, err := url.Parse(place)
	if err != nil {
		return nil, err
	}
	// Nothing is lost without syncs, since the machine keeps running.
	opts := sqlitestore.Options{Synchronous: sqlitestore.SynchronousNormal, Types: types, AppendMiddleware: around}
	if n := at.Query().Get("connections"); n != "" {
		opts.Readers, err = strconv.Atoi(n)
		if err != nil {
			return nil, err
		}
	}
	store, err := sqlitestore.Open(ctx, at.Path, opts)
	if err != nil {
		return nil, err
	}
	file := url.URL{
		Scheme: "file", OmitHost: true, Path: at.Path,
		RawQuery: "_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=synchronous(NORMAL)",
	}
	own, err := sql.Open("sqlite", file.String())
	return SQLiteStore{store, own}, err
}

func (SQLiteStore) Name() string { return projection.DefaultTenant }

func (s SQLiteStore) Close() {
	_ = s.own.Close()
	s.Store.Close()
}

func (s SQLiteStore) Prepare(ctx context.Context) error {
	return s.exec(ctx, `
		create table if not exists applied (at integer primary key autoincrement, projection text, position integer, stream text, version integer);
		create index if not exists applied_projection on applied (projection, at);
		create table if not exists arrived (at integer primary key autoincrement, position integer, token text);
		create table if not exists strict (a integer unique);
		create table if not exists big (a blob);
		create table if not exists late (a integer references strict (a) deferrable initially deferred)`)
}

func (s SQLiteStore) exec(ctx context.Context, query string, args ...any) error {
	return s.Store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
}

func (s SQLiteStore) ForTenant(name string) (Tenant, error) {
	tenant, err := s.Store.ForTenant(name)
	return sqliteTenant{tenant}, err
}

func (s SQLiteStore) CreateTenant(ctx context.Context, name string) (Tenant, error) {
	tenant, err := s.Store.CreateTenant(ctx, name)
	return sqliteTenant{tenant}, err
}

func (s SQLiteStore) CreateTenants(ctx context.Context, names []string) (tenants []Tenant, err error) {
	if err := s.Store.CreateTenants(ctx, names...); err != nil {
		return nil, err
	}
	for _, name := range names {
		tenant, err := s.ForTenant(name)
		if err != nil {
			return nil, err
		}
		tenants = append(tenants, tenant)
	}
	return tenants, nil
}

func (s SQLiteStore) State(ctx context.Context) (tenancy.State, error) {
	tenant, err := s.Store.ForTenant(projection.DefaultTenant)
	if err != nil {
		return "", err
	}
	return tenant.State(ctx)
}

func (s SQLiteStore) DropTenant(ctx context.Context, name string) error {
	return s.Store.DropTenant(ctx, name, tenancy.DropOptions{Confirm: name})
}

func (s SQLiteStore) Begin(ctx context.Context) (OwnTx, error) {
	tx, err := s.own.BeginTx(ctx, nil)
	return SQLiteTx{tx}, err
}

func (s SQLiteStore) InTx(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error {
	return s.Store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, SQLiteTx{tx}) })
}

func (s SQLiteStore) AppendTx(ctx context.Context, tx Tx, stream string, expected event.Expected,
	events ...event.Event) (event.Appended, error) {
	return s.Store.AppendTx(ctx, tx.(SQLiteTx).Tx, stream, expected, events...)
}

func (t sqliteTenant) AppendTx(ctx context.Context, tx Tx, stream string, expected event.Expected,
	events ...event.Event) (event.Appended, error) {
	return t.Tenant.AppendTx(ctx, tx.(SQLiteTx).Tx, stream, expected, events...)
}

func (s SQLiteStore) Within(tx Tx) aggregate.Store {
	return aggregate.Within(s.Store, tx.(SQLiteTx).Tx)
}

func (t sqliteTenant) Within(tx Tx) aggregate.Store {
	return aggregate.Within(t.Tenant, tx.(SQLiteTx).Tx)
}

func (s SQLiteStore) AliasTx(ctx context.Context, tx Tx, name string) (string, error) {
	return s.Store.AliasTx(ctx, tx.(SQLiteTx).Tx, name)
}

func (t sqliteTenant) AliasTx(ctx context.Context, tx Tx, name string) (string, error) {
	return t.Tenant.AliasTx(ctx, tx.(SQLiteTx).Tx, name)
}

func (s SQLiteStore) DeadLetters(id projection.ID) projection.DeadLetters {
	return s.Store.DeadLetters(id)
}

func (SQLiteStore) Batch(f BatchFunc) millrace.Handler {
	return sqlitestore.Batch(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
		return f(ctx, SQLiteTx{tx}, events)
	})
}

func (SQLiteStore) Each(f EventFunc) millrace.Handler {
	return sqlitestore.Each(func(ctx context.Context, tx *sql.Tx, e event.Envelope) error {
		return f(ctx, SQLiteTx{tx}, e)
	})
}

func (SQLiteStore) Counted(f EventFunc) millrace.Handler {
	return sqlitestore.Route(sqlitestore.On(func(ctx context.Context, tx *sql.Tx, e event.Of[Counted]) error {
		return f(ctx, SQLiteTx{tx}, e.Envelope)
	}))
}

func (SQLiteStore) Queued(f QueueFunc) millrace.Handler {
	return sqlitestore.Queued(queues(f, sqliteRecord))
}

func (SQLiteStore) QueuedEach(f QueueEventFunc) millrace.Handler {
	return sqlitestore.QueuedEach(queues(f, sqliteRecord))
}

func (SQLiteStore) QueuedCounted(f QueueEventFunc) millrace.Handler {
	return sqlitestore.Route(sqlitestore.OnQueued(func(ctx context.Context, q sqlitestore.Queue,
		e event.Of[Counted]) error {
		return queues(f, sqliteRecord)(ctx, q, e.Envelope)
	}))
}

func (SQLiteStore) Mixed(counted EventFunc, noted QueueEventFunc) millrace.Handler {
	return sqlitestore.Route(sqlitestore.On(func(ctx context.Context, tx *sql.Tx, e event.Of[Counted]) error {
		return counted(ctx, SQLiteTx{tx}, e.Envelope)
	}),
		sqlitestore.OnQueuedBatch(func(ctx context.Context, q sqlitestore.Queue, events []event.Of[Noted]) error {
			for _, e := range events {
				if err := queues(noted, sqliteRecord)(ctx, q, e.Envelope); err != nil {
					return err
				}
			}
			return nil
		}))
}

func (SQLiteStore) Hook(f HookFunc) millrace.Hook {
	return sqlitestore.Hook(func(ctx context.Context, tx *sql.Tx) error { return f(ctx, SQLiteTx{tx}) })
}

func (s SQLiteStore) Numbers(ctx context.Context, query string) (values []int64, err error) {
	rows, err := s.DB().QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Err(), rows.Close()) }()
	names, err := rows.Columns()
	values = make([]int64, len(names))
	columns := make([]any, len(names))
	for i := range values {
		columns[i] = &values[i]
	}
	for rows.Next() {
		err = errors.Join(err, rows.Scan(columns...))
	}
	return values, err
}

func (s SQLiteStore) Applied(ctx context.Context, name string) ([]Applied, error) {
	return collectRows(ctx, s.DB(), func(row *sql.Rows,
		a *Applied) error {
		return row.Scan(&a.Position, &a.Stream, &a.Version)
	},
		"select position, stream, version from applied where projection = ? order by at", name)
}

func (s SQLiteStore) Arrive(ctx context.Context, a Arrival) error {
	return s.exec(ctx, "insert into arrived (position, token) values (?, ?)", a.Position, a.Token)
}

func (s SQLiteStore) Arrived(ctx context.Context) ([]Arrival, error) {
	return collectRows(ctx, s.DB(), func(row *sql.Rows, a *Arrival) error { return row.Scan(&a.Position, &a.Token) },
		"select position, token from arrived order by at")
}

// collectRows returns the rows of a query.
func collectRows[T any](ctx context.Context, db *sql.DB, scan func(*sql.Rows, *T) error, query string,
	args ...any) (list []T, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Err(), rows.Close()) }()
	for rows.Next() {
		var v T
		if err := scan(rows, &v); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

func (s SQLiteStore) Commands(ctx context.Context) (all, open int, err error) {
	err = s.DB().QueryRowContext(ctx,
		"select count(*), count(*) filter (where ended_at is null) from millrace_commands").Scan(&all, &open)
	return all, open, err
}

func (s SQLiteStore) Age(ctx context.Context, by time.Duration) error {
	return s.exec(ctx, "update millrace_dead_letters set last_failed_at = last_failed_at - ?", by.Microseconds())
}

func (s SQLiteStore) Retire(ctx context.Context, id projection.ID, reason engine.RetiredReason,
	successor string) error {
	return s.exec(ctx, `insert into millrace_retired_projections (tenant, name, reason, successor, retired_at)
		select id, ?2, ?3, nullif(?4, ''), 1 from millrace_tenants where name = ?1`, id.Tenant, id.Name, reason, successor)
}

func (s SQLiteStore) Truncate(ctx context.Context, position int64) error {
	return errors.Join(
		s.exec(ctx, `delete from millrace_events where position > ?1
			and tenant = (select id from millrace_tenants where name = 'default')`, position),
		s.exec(ctx, "update millrace_tenants set head = ?1 where name = 'default'", position),
		s.exec(ctx, `update millrace_streams as s
			set version = (select count(*) from millrace_events e where e.tenant = s.tenant and e.stream_id = s.stream_id)`))
}

func (s SQLiteStore) Quarantine(ctx context.Context) error {
	return s.exec(ctx, "update millrace_leases set crash_count = 3")
}

func (s SQLiteStore) CrashAttempts(ctx context.Context) (attempts int, err error) {
	err = s.DB().QueryRowContext(ctx,
		"select coalesce(sum(crash_attempts), 0) from millrace_projections").Scan(&attempts)
	return attempts, err
}

func (tx SQLiteTx) Record(ctx context.Context, name string, events ...event.Envelope) error {
	sql, args := sqliteRecord(name, events)
	return tx.Exec(ctx, sql, args...)
}

func sqliteRecord(name string, events []event.Envelope) (sql string, args []any) {
	list := make([]Applied, len(events))
	for i, e := range events {
		list[i] = Applied{e.Position, e.Stream, e.Version}
	}
	raw, _ := json.Marshal(list) // of numbers and texts
	return `insert into applied (projection, position, stream, version)
		select ?, value ->> 'Position', value ->> 'Stream', value ->> 'Version' from json_each(?) order by key`, []any{name, string(raw)}
}

func (tx SQLiteTx) Erase(ctx context.Context, name string) error {
	return tx.Exec(ctx, "delete from applied where projection = ?", name)
}

func (tx SQLiteTx) Exec(ctx context.Context, query string, args ...any) error {
	_, err := tx.ExecContext(ctx, query, args...)
	return err
}

func (tx SQLiteTx) Commit(context.Context) error { return tx.Tx.Commit() }

func (tx SQLiteTx) Rollback(context.Context) error { return tx.Tx.Rollback() }

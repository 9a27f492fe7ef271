package kit

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// Postgres is the kind of pgstore.Store. Its places are DSNs.
var Postgres = &Kind{
	Name: "pgstore",
	Has:  []Need{SeveralNodes, ConcurrentWrites},
	Types: map[string]reflect.Type{
		"Store": reflect.TypeFor[*pgstore.Store](), "Tenant": reflect.TypeFor[*pgstore.Tenant](),
	},
	Place: func(t *testing.T, connections int) string {
		return withConnections(t, pgtest.Database(t), connections)
	},
	Ready: func(t *testing.T, connections int) string {
		return withConnections(t, ready.Database(t), connections)
	},
	Open: func(ctx context.Context, dsn string, types *eventtype.Types, around ...event.AppendMiddleware) (Store,
		error) {
		store, err := pgstore.Open(ctx, dsn, pgstore.Options{Types: types, AppendMiddleware: around})
		return PgStore{store}, err
	},
	Faults: map[string]Fault{
		"SQL error": {"22012", Exec("select 1/0")},
		"swallowed SQL error": {"returned no error, but a statement of its transaction failed: ERROR: division by zero (SQLSTATE 22012)", func(ctx context.Context, tx Tx) error {
			_ = tx.Exec(ctx, "select 1/0")
			return nil
		}},
		"constraint":             {"23505", Exec("insert into strict values (1), (1)")},
		"deferred constraint":    {"23505", Exec("insert into late values (1), (1)")},
		"timeout in a statement": {"timeout passed", Exec("select pg_sleep(60)")},
		"end of its transaction": {"commit refused", func(ctx context.Context, tx Tx) error { return tx.Commit(ctx) }},
	},
	Outages: map[string]func(ctx context.Context, tx Tx) error{
		"connection": Exec("select pg_terminate_backend(pg_backend_pid()); select 1"),
		"connection, wrapped without %w": func(ctx context.Context, tx Tx) error {
			return fmt.Errorf("no: %v", tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid()); select 1"))
		},
		"connection, swallowed": func(ctx context.Context, tx Tx) error {
			_ = tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid()); select 1")
			return nil
		},
		"deadlock, swallowed": func(ctx context.Context, tx Tx) error {
			_ = Raise("40P01")(ctx, tx)
			return nil
		},
		"serialization failure, wrapped without %w": func(ctx context.Context, tx Tx) error {
			return fmt.Errorf("no: %v", Raise("40001")(ctx, tx))
		},
		"deadlock": Raise("40P01"), "serialization failure": Raise("40001"), "lock timeout": Raise("55P03"),
		"disk full": Raise("53100"), "read only": Raise("25006"), "shutdown": Raise("57P01"),
		"too many connections": Raise("53300"),
	},
}

// ready is a database whose store is ready.
var ready = pgtest.NewTemplateDatabase(func(ctx context.Context, dsn string) error {
	store, err := pgstore.Open(ctx, dsn, pgstore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	return PgStore{store}.Prepare(ctx)
})

// PgReady returns the DSN of a new database whose store is migrated and prepared.
func PgReady(t *testing.T) string { return ready.Database(t) }

func withConnections(t *testing.T, dsn string, connections int) string {
	if connections == 0 {
		return dsn
	}
	return WithSetting(t, dsn, "pool_max_conns", fmt.Sprint(connections))
}

// Raise returns a function whose statement fails with an SQLSTATE.
func Raise(state string) func(ctx context.Context, tx Tx) error {
	return Exec("do $$ begin raise exception 'on purpose' using errcode = '" + state + "'; end $$")
}

// WithSetting returns the DSN with a parameter set.
func WithSetting(t *testing.T, dsn, name, value string) string {
	t.Helper()
	dsn, err := pgtest.WithSetting(dsn, name, value)
	if err != nil {
		t.Fatal(err)
	}
	return dsn
}

// PgStore is a pgstore.Store as tests see it.
type PgStore struct{ *pgstore.Store }

// PgTx is a transaction of PostgreSQL as tests see it.
type PgTx struct{ pgx.Tx }

type pgTenant struct{ *pgstore.Tenant }

func (PgStore) Name() string { return projection.DefaultTenant }

func (s PgStore) Prepare(ctx context.Context) error {
	return s.exec(ctx, `
		create table if not exists applied (projection text, position bigint, stream text, version bigint, at bigint generated always as identity);
		create table if not exists arrived (position bigint, token text, at bigint generated always as identity);
		create table if not exists strict (a int primary key);
		create table if not exists late (a int unique deferrable initially deferred)`, pgx.QueryExecModeSimpleProtocol)
}

func (s PgStore) exec(ctx context.Context, sql string, args ...any) error {
	_, err := s.Pool().Exec(ctx, sql, args...)
	return err
}

func (s PgStore) CreateTenant(ctx context.Context, name string) (Tenant, error) {
	tenant, err := s.Store.CreateTenant(ctx, name)
	return pgTenant{tenant}, err
}

func (s PgStore) CreateTenants(ctx context.Context, names []string) (tenants []Tenant, err error) {
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

func (s PgStore) ForTenant(name string) (Tenant, error) {
	tenant, err := s.Store.ForTenant(name)
	return pgTenant{tenant}, err
}

func (s PgStore) State(ctx context.Context) (tenancy.State, error) {
	tenant, err := s.Store.ForTenant(projection.DefaultTenant)
	if err != nil {
		return "", err
	}
	return tenant.State(ctx)
}

func (s PgStore) DropTenant(ctx context.Context, name string) error {
	return s.Store.DropTenant(ctx, name, tenancy.DropOptions{Confirm: name})
}

func (s PgStore) Begin(ctx context.Context) (OwnTx, error) {
	tx, err := s.Pool().Begin(ctx)
	return PgTx{tx}, err
}

func (s PgStore) InTx(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error {
	return s.Store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error { return fn(ctx, PgTx{tx}) })
}

func (s PgStore) DeadLetters(id projection.ID) projection.DeadLetters { return s.Store.DeadLetters(id) }

func (PgStore) Batch(f BatchFunc) millrace.Handler {
	return pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		return f(ctx, PgTx{tx}, events)
	})
}

func (PgStore) Each(f EventFunc) millrace.Handler {
	return pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error { return f(ctx, PgTx{tx}, e) })
}

func (PgStore) Counted(f EventFunc) millrace.Handler {
	return pgstore.Route(pgstore.On(func(ctx context.Context, tx pgx.Tx, e event.Of[Counted]) error {
		return f(ctx, PgTx{tx}, e.Envelope)
	}))
}

func (PgStore) Queued(f QueueFunc) millrace.Handler { return pgstore.Queued(queues(f, pgRecord)) }

func (PgStore) QueuedEach(f QueueEventFunc) millrace.Handler {
	return pgstore.QueuedEach(queues(f, pgRecord))
}

func (PgStore) QueuedCounted(f QueueEventFunc) millrace.Handler {
	return pgstore.Route(pgstore.OnQueued(func(ctx context.Context, q pgstore.Queue, e event.Of[Counted]) error {
		return queues(f, pgRecord)(ctx, q, e.Envelope)
	}))
}

func (PgStore) Mixed(counted EventFunc, noted QueueEventFunc) millrace.Handler {
	return pgstore.Route(pgstore.On(func(ctx context.Context, tx pgx.Tx, e event.Of[Counted]) error {
		return counted(ctx, PgTx{tx}, e.Envelope)
	}),
		pgstore.OnQueuedBatch(func(ctx context.Context, q pgstore.Queue, events []event.Of[Noted]) error {
			for _, e := range events {
				if err := queues(noted, pgRecord)(ctx, q, e.Envelope); err != nil {
					return err
				}
			}
			return nil
		}))
}

func (PgStore) Hook(f HookFunc) millrace.Hook {
	return pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error { return f(ctx, PgTx{tx}) })
}

func (s PgStore) AppendTx(ctx context.Context, tx Tx, stream string, expected event.Expected,
	events ...event.Event) (event.Appended, error) {
	return s.Store.AppendTx(ctx, tx.(PgTx).Tx, stream, expected, events...)
}

func (t pgTenant) AppendTx(ctx context.Context, tx Tx, stream string, expected event.Expected,
	events ...event.Event) (event.Appended, error) {
	return t.Tenant.AppendTx(ctx, tx.(PgTx).Tx, stream, expected, events...)
}

func (s PgStore) Within(tx Tx) aggregate.Store { return aggregate.Within(s.Store, tx.(PgTx).Tx) }

func (t pgTenant) Within(tx Tx) aggregate.Store { return aggregate.Within(t.Tenant, tx.(PgTx).Tx) }

func (s PgStore) AliasTx(ctx context.Context, tx Tx, name string) (string, error) {
	return s.Store.AliasTx(ctx, tx.(PgTx).Tx, name)
}

func (t pgTenant) AliasTx(ctx context.Context, tx Tx, name string) (string, error) {
	return t.Tenant.AliasTx(ctx, tx.(PgTx).Tx, name)
}

func (s PgStore) Numbers(ctx context.Context, query string) (values []int64, err error) {
	rows, _ := s.Pool().Query(ctx, query)
	return pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) ([]int64, error) {
		values, err := row.Values()
		numbers := make([]int64, len(values))
		for i, v := range values {
			numbers[i] = v.(int64)
		}
		return numbers, err
	})
}

func (s PgStore) Applied(ctx context.Context, name string) ([]Applied, error) {
	rows, err := s.Pool().Query(ctx,
		"select position, stream, version from public.applied where projection = $1 order by at", name)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Applied])
}

func (s PgStore) Arrive(ctx context.Context, a Arrival) error {
	return s.exec(ctx, "insert into public.arrived (position, token) values ($1, $2)", a.Position, a.Token)
}

func (s PgStore) Arrived(ctx context.Context) ([]Arrival, error) {
	rows, err := s.Pool().Query(ctx, "select position, token from public.arrived order by at")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Arrival])
}

func (s PgStore) Commands(ctx context.Context) (all, open int, err error) {
	err = s.Pool().QueryRow(ctx,
		"select count(*), count(*) filter (where ended_at is null) from millrace.commands").Scan(&all, &open)
	return all, open, err
}

func (s PgStore) Age(ctx context.Context, by time.Duration) error {
	return s.exec(ctx, "update millrace.dead_letters set last_failed_at = last_failed_at - $1::interval", by)
}

func (s PgStore) Retire(ctx context.Context, id projection.ID, reason engine.RetiredReason, successor string) error {
	return s.exec(ctx,
		"insert into millrace.retired_projections (tenant, name, reason, successor) values ($1, $2, $3, nullif($4, ''))",
		id.Tenant, id.Name, reason, successor)
}

func (s PgStore) Truncate(ctx context.Context, position int64) error {
	return errors.Join(
		s.exec(ctx, "delete from millrace_default.events where global_seq > $1", position),
		s.exec(ctx, fmt.Sprintf("alter table millrace_default.events alter column global_seq restart with %d",
			position+1)),
		s.exec(ctx,
			"update millrace_default.streams s set version = (select count(*) from millrace_default.events e where e.stream_id = s.stream_id)"))
}

func (s PgStore) Quarantine(ctx context.Context) error {
	return s.exec(ctx, "update millrace.leases set crash_count = 3")
}

func (s PgStore) CrashAttempts(ctx context.Context) (attempts int, err error) {
	err = s.Pool().QueryRow(ctx, "select coalesce(sum(crash_attempts), 0) from millrace.projections").Scan(&attempts)
	return attempts, err
}

func (tx PgTx) Record(ctx context.Context, name string, events ...event.Envelope) error {
	sql, args := pgRecord(name, events)
	return tx.Exec(ctx, sql, args...)
}

func pgRecord(name string, events []event.Envelope) (sql string, args []any) {
	positions, versions, streams := make([]int64, len(events)), make([]int64, len(events)), make([]string, len(events))
	for i, e := range events {
		positions[i], versions[i], streams[i] = e.Position, e.Version, e.Stream
	}
	return `insert into public.applied (projection, position, stream, version)
		select $1, p, s, v from unnest($2::bigint[], $3::text[], $4::bigint[]) with ordinality as u(p, s, v, o) order by o`,
		[]any{name, positions, streams, versions}
}

func (tx PgTx) Erase(ctx context.Context, name string) error {
	return tx.Exec(ctx, "delete from public.applied where projection = $1", name)
}

func (tx PgTx) Exec(ctx context.Context, sql string, args ...any) error {
	_, err := tx.Tx.Exec(ctx, sql, args...)
	return err
}

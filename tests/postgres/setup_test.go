package postgres_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// bundle is a kit.Bundle with what PostgreSQL has beside it.
type bundle struct {
	*kit.Bundle
	dsn   string
	store *pgstore.Store
}

// setup makes a store in a database of its own. The settings are names and values in its DSN.
func setup(t *testing.T, opts pgstore.Options, settings ...string) *bundle {
	t.Helper()
	dsn := kit.PgReady(t)
	for i := 0; i+1 < len(settings); i += 2 {
		dsn = kit.WithSetting(t, dsn, settings[i], settings[i+1])
	}
	return setupAt(t, dsn, opts)
}

// private makes a store in a server of its own.
func private(t *testing.T, options pgtest.Options) (b *bundle, server *pgtest.Server) {
	t.Helper()
	server = pgtest.Private(t, options)
	return setupAt(t, server.DSN("postgres"), pgstore.Options{}), server
}

// setupAt makes a store in a database, which may be empty.
func setupAt(t *testing.T, dsn string, opts pgstore.Options) *bundle {
	t.Helper()
	b := newBundle(t, dsn)
	b.use(b.open(dsn, nil, opts))
	b.Must(b.store.Migrate(b.Ctx))
	b.Must(b.Store.Prepare(b.Ctx))
	return b
}

// newBundle makes a bundle without a store.
func newBundle(t *testing.T, dsn string) *bundle {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	return &bundle{Bundle: &kit.Bundle{T: t, Ctx: ctx, Kind: kit.Postgres, Place: dsn}, dsn: dsn}
}

// in returns the bundle for a subtest.
func (b *bundle) in(t *testing.T) *bundle {
	inner := *b.Bundle
	inner.T = t
	return &bundle{Bundle: &inner, dsn: b.dsn, store: b.store}
}

// use makes a store that of the bundle.
func (b *bundle) use(store *pgstore.Store) { b.store, b.Store = store, kit.PgStore{Store: store} }

// open opens a store whose pool change has set up, until the test ends.
func (b *bundle) open(dsn string, change func(config *pgxpool.Config), opts pgstore.Options) *pgstore.Store {
	b.T.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	b.Must(err)
	if change == nil {
		store, err := pgstore.Open(b.Ctx, dsn, opts)
		b.Must(err)
		b.T.Cleanup(store.Close)
		return store
	}
	change(config)
	pool, err := pgxpool.NewWithConfig(b.Ctx, config)
	b.Must(err)
	b.T.Cleanup(pool.Close)
	store, err := pgstore.OpenPool(b.Ctx, pool, opts)
	b.Must(err)
	b.T.Cleanup(store.Close)
	return store
}

// dialing changes how the connections of a pool are made.
func dialing(wrap func(conn net.Conn) net.Conn) func(config *pgxpool.Config) {
	return func(config *pgxpool.Config) {
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return wrap(conn), nil
		}
	}
}

// elsewhere opens a second store over the same database, as in another process: its appends wake nothing here directly.
func (b *bundle) elsewhere(opts pgstore.Options) *pgstore.Store {
	b.T.Helper()
	return b.open(b.dsn, nil, opts)
}

func (b *bundle) exec(sql string, args ...any) {
	b.T.Helper()
	if _, err := b.store.Pool().Exec(b.Ctx, sql, args...); err != nil {
		b.T.Fatalf("%s: %v", sql, err)
	}
}

// value reads one value.
func value[T any](b *bundle, sql string, args ...any) (v T) {
	b.T.Helper()
	if err := b.store.Pool().QueryRow(b.Ctx, sql, args...).Scan(&v); err != nil {
		b.T.Fatalf("%s: %v", sql, err)
	}
	return v
}

// lock takes a lock in a connection of its own until release is called.
func (b *bundle) lock(sql string) (release func()) {
	b.T.Helper()
	_, release = b.session("begin; " + sql)
	return release
}

// session runs a statement in a connection of its own, which ends with the test at the latest.
func (b *bundle) session(sql string) (conn *pgx.Conn, end func()) {
	b.T.Helper()
	conn, err := pgx.ConnectConfig(b.Ctx, b.store.Pool().Config().ConnConfig)
	b.Must(err)
	end = func() { _ = conn.Close(context.WithoutCancel(b.Ctx)) }
	b.T.Cleanup(end)
	_, err = conn.Exec(b.Ctx, sql)
	b.Must(err)
	return conn, end
}

// terminateSessions ends the session connections of the bundle's nodes. They hold an advisory lock each.
func (b *bundle) terminateSessions() {
	b.T.Helper()
	n := value[int](b,
		`select count(pg_terminate_backend(pid)) from pg_locks where locktype = 'advisory' and objsubid = 1
		and database = (select oid from pg_database where datname = current_database())`)
	if n == 0 {
		b.T.Fatal("there is no session connection")
	}
}

// reconnects waits until a runtime has a session connection that is younger than a time.
func (b *bundle) reconnects(rt *millrace.Runtime, since time.Time) {
	b.T.Helper()
	b.Eventually("there is a new session connection", func() bool {
		summary, err := rt.Summary(b.Ctx)
		return err == nil && summary.Session.Connected && summary.Session.Since.After(since)
	})
}

// pg returns a handler's transaction as pgx has it.
func pg(tx kit.Tx) pgx.Tx { return tx.(kit.PgTx).Tx }

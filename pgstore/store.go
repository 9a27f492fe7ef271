// Package pgstore is a millrace.Store in PostgreSQL. It appends and reads events, manages tenants and their schemas, makes handlers
// that get a transaction, and lists, replays and discards dead letters.
//
// It needs PostgreSQL 14 or newer, and the primary. Distributed look-alikes of PostgreSQL, direct inserts into a partition of the
// events table, and logical subscribers that insert into it are not supported: the settled mark cannot see their appends.
package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/pgstore/internal/session"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/projection"
)

// DefaultSchema is the default of Options.Schema.
const DefaultSchema = "millrace"

// DefaultKeyRetention is the default of Options.KeyRetention. Clients and queues repeat deliveries seconds to days later, and
// longer over a weekend on which the receiver is down. A key takes some 250 bytes.
const DefaultKeyRetention = 7 * 24 * time.Hour

// Options configure a Store. The zero value means the defaults.
type Options struct {
	// Schema is the control schema; tenant schemas are named after it with "_" and the tenant's name. Default DefaultSchema.
	// At most 30 bytes, so that tenants fit behind it. The server's own schemas (information_schema, and names that begin
	// with pg_) and public are refused.
	Schema string
	// SessionDSN is the DSN of session connections. It is needed if a pooler in transaction mode stands between the pool and the
	// server, because LISTEN and session locks do not survive such a pooler. Without it the runtime polls and relies on
	// heartbeats. The pool's hooks AfterConnect, PrepareConn and BeforeAcquire set up session connections too, and
	// BeforeConnect if SessionDSN is empty. Default: the pool's DSN.
	SessionDSN string
	// SharedSchemas are schemas that named tenants search after their own: for extensions, functions, and tables for all. The
	// search path of a named tenant is its schema, these in order, and pg_temp. It applies in handlers, in Tenant.InTx and in
	// TenantSetup. It has nothing else, so public must be named here to be found. All tenants see the same tables in a shared
	// schema. DefaultTenant keeps the search path of its sessions. Default: none.
	SharedSchemas []string
	// TenantSetup makes the tables and other objects of each tenant, DefaultTenant included. CreateTenant runs all steps in
	// the transaction that creates the tenant. Migrate runs the steps that a tenant lacks, in one transaction for each
	// tenant. Steps are identified by their index alone: append new steps, and never change, reorder or remove one that was
	// applied anywhere. Programs with fewer steps than the database has keep working, but cannot create tenants. Default:
	// none.
	TenantSetup []TenantStep
	// NoNotify turns off the NOTIFY after each append. Other processes then find new events by polling.
	NoNotify bool
	// KeyRetention is how long idempotency keys are kept at least (see event.Expected.WithKey). Default DefaultKeyRetention; negative
	// means for ever. Appends with keys delete older ones, a few at a time. An append that is repeated after its key was
	// deleted appends again, or meets a version conflict if it expects a version.
	KeyRetention time.Duration
	// Logger receives the logs. Default: nothing is logged.
	Logger *zap.Logger
}

func (o Options) withDefaults() Options {
	o.SharedSchemas, o.TenantSetup = slices.Clone(o.SharedSchemas), slices.Clone(o.TenantSetup)
	if o.Schema == "" {
		o.Schema = DefaultSchema
	}
	if o.KeyRetention == 0 {
		o.KeyRetention = DefaultKeyRetention
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

func (o Options) validate() error {
	if err := validName("Options.Schema", o.Schema, 30); err != nil {
		return err
	}
	if err := notReserved(o.Schema); err != nil {
		return err
	}
	if strings.Contains(o.Schema, "$$") {
		return fmt.Errorf("Options.Schema must not contain $$, which quotes the functions in it: %q", o.Schema)
	}
	if err := validShared(o.Schema, o.SharedSchemas); err != nil {
		return err
	}
	if err := validSetup(o.TenantSetup); err != nil {
		return err
	}
	if o.SessionDSN != "" {
		if _, err := pgx.ParseConfig(o.SessionDSN); err != nil {
			return fmt.Errorf("Options.SessionDSN: %w", err)
		}
	}
	return nil
}

// Store is a PostgreSQL event store. It is safe for concurrent use. Append, AppendTx, InTx, ReadStream and ReadAll work on the
// events of projection.DefaultTenant; ForTenant returns another tenant.
type Store struct {
	// tenant is DefaultTenant.
	tenant *Tenant

	pool        *pgxpool.Pool
	ownPool     bool
	opts        Options
	log         *zap.Logger
	control     controlSchema
	notify      *notifier
	locks       *lockScanner
	tenantLocks tenantLocks
	server      server
	// sessions are the settings of the sessions that a pooler lends.
	sessions session.Pooled
	// abandoned counts the handlers that did not come back.
	abandoned atomic.Int64
	// warned reports whether extensions outside the tenants' search path were checked for.
	warned atomic.Bool

	prepared preparedNames
}

// server is what was found about the server when the store was opened.
type server struct {
	// pooling describes the pooler between the pool and the server.
	pooling session.Pooling
	// unbounded is a statement at the beginning of a transaction of ours: it takes the bound from it that the server has for all.
	unbounded string
	// watchesClients reports whether the server can notice that a client is gone while it runs a statement.
	watchesClients bool
}

// Open connects to the database that dsn names, with a pool of its own, and checks the server. The DSN is that of pgxpool, so
// pool_max_conns and the like may be given in it. If it names several hosts, connections go to the one that takes writes, as
// with target_session_attrs=read-write. Behind a pooler in transaction mode, where pgx's default mode does not work, the
// pool's default_query_exec_mode becomes cache_describe.
func Open(ctx context.Context, dsn string, opts Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	primaryOnly(config.ConnConfig)
	store, err := openConfig(ctx, config, opts)
	if errors.Is(err, session.ErrExecMode) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		config.ConnConfig.DescriptionCacheCapacity = cmp.Or(config.ConnConfig.DescriptionCacheCapacity, 512)
		store, err = openConfig(ctx, config, opts)
	}
	return store, err
}

// openConfig opens a store that owns its pool.
func openConfig(ctx context.Context, config *pgxpool.Config, opts Options) (*Store, error) {
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	store, err := OpenPool(ctx, pool, opts)
	if err != nil {
		pool.Close()
		return nil, err
	}
	store.ownPool = true
	return store, nil
}

// OpenPool makes a store over a pool of the caller's, and checks the server. The caller closes the pool, after the
// store. A pool that may connect to several hosts is refused unless it asks for a session that takes writes, as with
// target_session_attrs=read-write in its DSN: after a failover it could lead to a standby.
// So is a pool whose default_query_exec_mode does not work behind its pooler; exec and cache_describe work everywhere.
func OpenPool(ctx context.Context, pool *pgxpool.Pool, opts Options) (*Store, error) {
	if pool == nil {
		return nil, errors.New("open store: the pool is nil")
	}
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := onePrimary(pool.Config().ConnConfig); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	facts, err := checkServer(ctx, pool, opts.Logger)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{pool: pool, opts: opts, log: opts.Logger, control: newControlSchema(opts.Schema, opts.KeyRetention)}
	if err := s.checkPooling(ctx); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if facts.version >= 170000 {
		s.server.unbounded = withoutTransactionTimeout
	}
	s.server.watchesClients = watchesClients(ctx, pool)
	s.notify = newNotifier(s)
	s.locks = newLockScanner(s)
	s.tenant, err = s.ForTenant(projection.DefaultTenant)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s.prepared.add(projection.DefaultTenant)
	return s, nil
}

// checkPooling finds out whether a pooler stands before the server, and returns an error if the pool's mode does not work
// with it.
func (s *Store) checkPooling(ctx context.Context) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("look for a pooler: %w", err)
	}
	defer conn.Release()
	s.server.pooling, err = session.FindPooling(ctx, conn.Conn(), func(ctx context.Context) (*pgx.Conn, error) { return s.dial(ctx, "") })
	if err != nil {
		return fmt.Errorf("look for a pooler: %w", err)
	}
	return s.server.pooling.CheckMode(conn.Conn().Config().DefaultQueryExecMode)
}

// Pooled reports whether a pooler in transaction mode stands between the pool and the server, as found when the store was
// opened.
func (s *Store) Pooled() bool { return s.server.pooling.Lends }

// Close sends the remaining wake-ups, ends all waiting, and closes the pool if Open made it. It may be called again.
func (s *Store) Close() {
	s.locks.close()
	s.notify.close()
	if s.ownPool {
		s.pool.Close()
	}
}

// Pool returns the store's pool.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// ForTenant returns the events of one tenant. It does not check whether the tenant exists: calls on a tenant that does not exist
// fail with projection.ErrUnknownTenant. The name is 1 to 32 bytes of valid UTF-8 without control characters.
func (s *Store) ForTenant(name string) (*Tenant, error) {
	if err := validName("tenant", name, 32); err != nil {
		return nil, err
	}
	schema := s.opts.Schema + "_" + name
	return &Tenant{store: s, name: name, schema: schema, quoted: sqltext.Name(schema)}, nil
}

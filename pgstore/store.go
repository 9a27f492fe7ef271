// Package pgstore is a millrace.Store in PostgreSQL. It appends and reads events, manages tenants and their schemas,
// makes handlers that get a transaction, and lists, replays and discards dead letters.
//
// It needs the primary of PostgreSQL 14 or newer. Some things are not supported, because the settled mark cannot see
// their appends: distributed databases that are compatible with PostgreSQL, direct inserts into a partition of the
// events table, and logical subscriptions that insert into it.
package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/follow"
	"github.com/millrace-go/millrace/internal/logging"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/pgstore/internal/session"
	"github.com/millrace-go/millrace/projection"
)

// defaultKeyRetention is longer than the time after which clients and queues repeat deliveries: seconds to days, and
// more over a weekend on which the receiver is down. A key takes some 250 bytes.
const defaultKeyRetention = 7 * 24 * time.Hour

// Options configure a Store. The zero value means the defaults.
type Options struct {
	// Schema is the name of the control schema. The schemas of tenants begin with it and "_". It is at most 30 bytes
	// long. information_schema, public and names that begin with pg_ are refused. Default: "millrace".
	Schema string
	// SessionDSN is the DSN of session connections. It is needed if a pooler in transaction mode stands between the
	// pool and the server, because LISTEN and session locks do not survive such a pooler. Without it the runtime polls
	// and relies on heartbeats. The pool's hooks AfterConnect, PrepareConn and BeforeAcquire set up session connections
	// too, and BeforeConnect if SessionDSN is empty. Default: the pool's DSN.
	SessionDSN string
	// HookDSN is the DSN with which the hooks of projections (Reset, Swap and Drop) connect, each with its whole
	// transaction, and with which the sessions of hooks are ended whose node is gone. Nothing else uses it. It is for
	// hooks that alter, drop or truncate what the role of the pool does not own: name the role that owns it. It must
	// lead to the same database, and not to a pooler in transaction mode. The pool's hooks AfterConnect, PrepareConn
	// and BeforeAcquire set up its connections, too. Default: hooks use the pool.
	HookDSN string
	// SharedSchemas are schemas with extensions, functions and tables that all tenants share. In handlers, Tenant.InTx
	// and TenantSetup, the search path of a named tenant is its own schema, these in order, and pg_temp. It does not
	// include public unless that is listed here. DefaultTenant keeps the search path of its sessions. Default: none.
	SharedSchemas []string
	// TenantSetup creates the tables and other objects of each tenant, DefaultTenant included. CreateTenant runs all
	// steps in the transaction that creates the tenant. Migrate runs the steps that a tenant lacks, in one transaction
	// per tenant. Steps are identified by their index alone: append new ones, and never change, reorder or remove one
	// that was applied. A program with fewer steps than other tenants have had creates tenants with its own
	// steps, and the program with more completes them: by Migrate, CreateTenant or CreateTenants.
	// Default: none.
	TenantSetup []TenantStep
	// NoNotify turns off the NOTIFY after appends. Other processes then find new events by polling, and those of this
	// process at once. Set it where this process runs all projections, or for an import that no projection has to
	// follow at once. It saves a statement after each burst of appends, at most some 500 a second.
	NoNotify bool
	// SyncEachCommit makes the commit of each queued batch wait for the disk itself. By default, of the batches that
	// share a message, only the last commit waits, and none counts as done before it. So readers may see rows of the
	// others some milliseconds before these are durable, and a crash of the server in between loses rows and checkpoint
	// together: the batch is applied again. Set it if readers pass on what they have read, and must not have seen what
	// is lost.
	SyncEachCommit bool
	// KeyRetention is the minimum time for which idempotency keys are kept (see event.Expected.WithKey). Appends with
	// keys delete older ones, a few at a time. An append that is repeated after its key was deleted appends again, or
	// meets a version conflict if it expects a version. Negative means for ever.
	// Raise it if clients repeat appends after weeks. A key takes some 250 bytes. Default: 7 days.
	KeyRetention time.Duration
	// Types is the registry of event types: appends of other types are refused, and handlers and readers get current
	// events. See package eventtype. Default: none, and every type is taken and read as it is.
	Types *eventtype.Types
	// AppendMiddleware is called around each Append and AppendTx, the first outermost. See event.AppendMiddleware.
	// Default: none.
	AppendMiddleware []event.AppendMiddleware
	// Logger receives the logs, such as slog.Default(). Default: nothing is logged.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.SharedSchemas, o.TenantSetup = slices.Clone(o.SharedSchemas), slices.Clone(o.TenantSetup)
	if o.Schema == "" {
		o.Schema = "millrace"
	}
	if o.KeyRetention == 0 {
		o.KeyRetention = defaultKeyRetention
	}
	return o
}

func (o Options) validate() error {
	if err := valid.Name("Options.Schema", o.Schema, 30); err != nil {
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

// Store is an event store in PostgreSQL. It is safe for concurrent use. Its methods for events and
// transactions work on projection.DefaultTenant. ForTenant returns other tenants.
type Store struct {
	// tenant is DefaultTenant.
	tenant *Tenant

	*database
	events    *eventReads
	notify    *notifier
	followers *follow.Hub
	// middleware is around all appends, nil if there is none.
	middleware *eventlog.Middleware
	handling   handling
	sharing    sharing
	prepared   preparedStatements
	extensions extensions
	// hasSnapshots reports that the table of snapshots was found.
	hasSnapshots atomic.Bool
}

// Open connects to a database with a pool of its own, and checks the server. dsn may include the settings of pgxpool,
// such as pool_max_conns. If it names several hosts, connections go to the one that takes writes, as with
// target_session_attrs=read-write. Behind a pooler in transaction mode, where pgx's default mode does not work,
// default_query_exec_mode becomes cache_describe.
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

// OpenPool returns a store that uses the caller's pool, and checks the server. The caller closes the pool after the
// store.
//
// A pool with several hosts could lead to a standby after a failover. It is refused unless its DSN has
// target_session_attrs=read-write or a similar check. A pool whose default_query_exec_mode does not work behind its
// pooler is refused too. exec and cache_describe work everywhere.
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
	middleware, err := eventlog.NewMiddleware(opts.AppendMiddleware)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	log := logging.Slog(opts.Logger)
	facts, err := checkServer(ctx, pool, log)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	db := &database{opts: opts, log: log, control: newControlSchema(opts.Schema, opts.KeyRetention), pool: pool}
	if err := db.checkPooling(ctx); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := db.checkRows(ctx); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if facts.version >= 170000 {
		db.server.unbounded = withoutTransactionTimeout
	}
	db.server.watchesClients = watchesClients(ctx, pool)
	hooks := pool.Config()
	//lint:ignore SA1019 the host's pool may still have BeforeAcquire
	db.server.preparesUses = hooks.PrepareConn != nil || hooks.BeforeAcquire != nil || hooks.AfterRelease != nil
	number := stores.Add(1)
	s := &Store{
		database: db, events: newEventReads(db, number), notify: newNotifier(db), middleware: middleware,
		extensions: extensions{database: db},
		sharing: sharing{
			database: db, most: min(max(int(hooks.MaxConns)/connectionsPerSender, leastSenders), mostSenders),
		},
	}
	s.followers = follow.New(s.port(), log)
	s.prepared.prefix = fmt.Sprintf("millrace_append_%d", number)
	s.tenant, err = s.ForTenant(projection.DefaultTenant)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s.prepared.add(projection.DefaultTenant)
	if opts.HookDSN != "" {
		s.hooks, err = s.newHooks(ctx)
		if err != nil {
			return nil, fmt.Errorf("open store: Options.HookDSN: %w", err)
		}
	}
	return s, nil
}

// checkPooling detects a pooler before the server. It returns an error if the pool's mode does not work with it.
func (db *database) checkPooling(ctx context.Context) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("detect a pooler: %w", err)
	}
	defer conn.Release()
	db.server.pooling, err = session.FindPooling(ctx, conn.Conn(),
		func(ctx context.Context) (*pgx.Conn, error) { return db.dial(ctx, "") })
	if err != nil {
		return fmt.Errorf("detect a pooler: %w", err)
	}
	return db.server.pooling.CheckMode(conn.Conn().Config().DefaultQueryExecMode)
}

// Close sends the remaining notifications, and closes the pool if Open made it. Calls in progress fail. It may be
// called again.
func (s *Store) Close() {
	s.followers.Close()
	s.events.close()
	s.notify.close()
	if s.hooks != nil {
		s.hooks.Close()
	}
	if s.ownPool {
		s.pool.Close()
	}
}

// Pool returns the store's pool.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// ForTenant returns a tenant by its name: 1 to 200 bytes of valid UTF-8 without control characters. It does not
// check whether the tenant exists. If it does not, the methods of Tenant return tenancy.ErrUnknown.
func (s *Store) ForTenant(name string) (*Tenant, error) {
	t, err := s.named(name)
	if err != nil {
		return nil, err
	}
	return &Tenant{store: s, namedTenant: t}, nil
}

// Package pgstore is everything PostgreSQL: events and how they are appended and read, the settled mark, leases,
// checkpoints, dead letters, wake-ups, and whose fault an SQLSTATE is.
//
// PostgreSQL 14 or newer, the primary only. Distributed look-alikes, inserts into a partition of the events table and
// logical subscribers that insert into it are not supported: the settled mark cannot see their appends.
package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/projection"
)

// DefaultSchema is the control schema where Options name none.
const DefaultSchema = "millrace"

// Options say how a store is opened. The zero value is fine.
type Options struct {
	// Schema is the control schema; tenant schemas are named after it with "_" and the tenant's name. Default
	// DefaultSchema. At most 30 bytes, so that tenants fit behind it. Schemas of the server's own (information_schema, and
	// pg_ with anything behind it) and public are refused.
	Schema string
	// SessionDSN is where session connections go. It is needed where a pooler in transaction mode stands between the
	// pool and the server, because LISTEN and session locks do not survive such a pooler. Default: as the pool.
	SessionDSN string
	// NoNotify turns the NOTIFY after each commit off. Other processes then find new events by polling.
	NoNotify bool
	// Logger receives what is worth knowing. Default: nothing is logged.
	Logger *zap.Logger
}

func (o Options) withDefaults() Options {
	if o.Schema == "" {
		o.Schema = DefaultSchema
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
		return fmt.Errorf("Options.Schema %q contains $$, which quotes the functions in it", o.Schema)
	}
	if o.SessionDSN != "" {
		if _, err := pgx.ParseConfig(o.SessionDSN); err != nil {
			return fmt.Errorf("Options.SessionDSN: %w", err)
		}
	}
	return nil
}

// Store is a PostgreSQL event store. It is safe for concurrent use. The events of DefaultTenant are at hand directly:
// store.Append and the others are those of the embedded Tenant.
type Store struct {
	*Tenant

	pool    *pgxpool.Pool
	ownPool bool
	opts    Options
	log     *zap.Logger
	control controlSQL
	notify  *notifier
	locks   *lockScanner
	// watchesClients tells that the server can notice a client that is gone while it runs a statement.
	watchesClients bool
	// abandoned counts the handlers that did not come back.
	abandoned atomic.Int64

	mu      sync.Mutex
	tenants map[string]*Tenant
}

// Open connects to the database that dsn names, with a pool of its own, and checks the server. The DSN is that of
// pgxpool, so pool_max_conns and the like may be given in it.
func Open(ctx context.Context, dsn string, opts Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
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
// store.
func OpenPool(ctx context.Context, pool *pgxpool.Pool, opts Options) (*Store, error) {
	if pool == nil {
		return nil, errors.New("open store: the pool is nil")
	}
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := checkServer(ctx, pool, opts.Logger); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{pool: pool, opts: opts, log: opts.Logger, control: newControlSQL(opts.Schema), tenants: make(map[string]*Tenant)}
	s.watchesClients = watchesClients(ctx, pool)
	s.notify = newNotifier(s)
	s.locks = newLockScanner(s)
	var err error
	s.Tenant, err = s.ForTenant(projection.DefaultTenant)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return s, nil
}

// Close ends what waits for events to settle, sends the wake-ups that are still to be sent and, where Open made the pool,
// closes it. It is idempotent.
func (s *Store) Close() {
	s.locks.close()
	s.notify.close()
	if s.ownPool {
		s.pool.Close()
	}
}

// Pool is the pool that the store works with.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// ForTenant returns the events of one tenant. It does not look whether the tenant exists: a call on one that does not
// fails with projection.ErrUnknownTenant. The name is 1 to 32 bytes of valid UTF-8 without control characters.
func (s *Store) ForTenant(name string) (*Tenant, error) {
	if err := validName("tenant", name, 32); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.tenants[name]; ok {
		return t, nil
	}
	schema := s.opts.Schema + "_" + name
	t := &Tenant{store: s, name: name, schema: schema, sql: newTenantSQL(s.opts.Schema, schema),
		prepared: len(s.tenants) < preparedTenants}
	s.tenants[name] = t
	return t, nil
}

// Tenant is the events of one tenant.
type Tenant struct {
	store  *Store
	name   string
	schema string
	sql    tenantSQL
	// prepared tells that appends go through the connections' prepared-statement caches.
	prepared bool
}

// Name is the tenant's name.
func (t *Tenant) Name() string { return t.name }

// EventsSchema is the name of the tenant's schema, not quoted.
func (t *Tenant) EventsSchema() string { return t.schema }

package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/tenancy"
)

// lockedAge is how long the known locks are used before the server is asked again.
const lockedAge = 100 * time.Millisecond

// tenantLocks stores which tenants' events are locked, so that reads of them fail at once. Otherwise each read of a
// locked tenant would wait for readLockWait and occupy a connection, and a migration that locks many tenants would
// delay the others. The first read that times out finds all locked tenants with one statement.
type tenantLocks struct {
	asking sync.Mutex // held while the server is asked
	known  atomic.Pointer[locksFound]
}

// locksFound are the sessions that locked events at a time, by schema.
type locksFound struct {
	holders map[string][]string
	asked   time.Time
}

// lockHolders returns the sessions that lock the events of schema, as far as known. If it knows of a lock, but the
// knowledge is old, it asks the server again.
func (s *Store) lockHolders(ctx context.Context, schema string) ([]string, error) {
	known := s.tenantLocks.known.Load()
	if known == nil || len(known.holders[schema]) == 0 {
		return nil, nil
	}
	known, err := s.findLocked(ctx, time.Now().Add(-lockedAge))
	if err != nil {
		return nil, err
	}
	return known.holders[schema], nil
}

// findLocked returns the locked tenants as they were at some time after since.
func (s *Store) findLocked(ctx context.Context, since time.Time) (*locksFound, error) {
	s.tenantLocks.asking.Lock()
	defer s.tenantLocks.asking.Unlock()
	if known := s.tenantLocks.known.Load(); known != nil && known.asked.After(since) {
		return known, nil
	}
	locks := &locksFound{holders: make(map[string][]string), asked: time.Now()}
	rows, _ := s.pool.Query(ctx, queries.Text("locked_events"), pgx.QueryExecModeExec)
	var schema, application string
	var pid *int32
	_, err := pgx.ForEachRow(rows, []any{&schema, &pid, &application}, func() error {
		who := "a prepared transaction"
		if pid != nil {
			who = fmt.Sprintf("backend %d", *pid)
		}
		if application != "" {
			who += fmt.Sprintf(" (%s)", application)
		}
		if !slices.Contains(locks.holders[schema], who) {
			locks.holders[schema] = append(locks.holders[schema], who)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.tenantLocks.known.Store(locks)
	return locks, nil
}

// readEvents is Store.readEvents for one tenant. If the tenant's events are locked, the error names the sessions that
// lock them. It is the fault of that tenant alone, not of the server.
func (t *Tenant) readEvents(ctx context.Context, sql string, args [][]byte, format []int16,
	decode func(*pgconn.ResultReader) error) (engine.Incarnation, error) {
	holders, err := t.store.lockHolders(ctx, t.schema)
	if err != nil {
		return 0, err
	}
	if len(holders) > 0 {
		return 0, &faults.Fault{Class: faults.Infrastructure, Err: errLockedBy(holders)}
	}
	in, err := t.store.readEvents(ctx, sql, args, format, decode)
	if !pgerr.Is(err, pgerr.LockNotAvailable) {
		return in, err
	}
	holders = []string{"a session that has ended"}
	if locks, findErr := t.store.findLocked(ctx, time.Now()); findErr == nil && len(locks.holders[t.schema]) > 0 {
		holders = locks.holders[t.schema]
	}
	return 0, &faults.Fault{Class: faults.Infrastructure, Err: fmt.Errorf("%w: %w", errLockedBy(holders), err)}
}

// errLockedBy is the error about a tenant whose events these sessions lock.
func errLockedBy(holders []string) error {
	return fmt.Errorf("%w by %s", tenancy.ErrLocked, strings.Join(holders, ", "))
}

// withoutLocked returns the tenants that are not known to be locked. For the others it puts the lock holders into
// failures.
func (s *Store) withoutLocked(ctx context.Context, names []string,
	failures map[string]error) (rest []string, err error) {
	for _, name := range names {
		t, err := s.ForTenant(name)
		if err != nil {
			return nil, err
		}
		holders, err := s.lockHolders(ctx, t.schema)
		switch {
		case err != nil:
			return nil, err
		case len(holders) > 0:
			failures[name] = errLockedBy(holders)
		default:
			rest = append(rest, name)
		}
	}
	return rest, nil
}

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
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/tenancy"
)

// lockedAge is how long the known locks are used before the server is asked again.
const lockedAge = 100 * time.Millisecond

// tenantLocks stores which tenants' events are locked, so that reads of them fail at once. Otherwise each read of a
// locked tenant would wait for readLockWait and occupy a connection, and a migration that locks many tenants would
// delay the others. The first read that times out finds all locked tenants with one statement.
type tenantLocks struct {
	pool   *pgxpool.Pool
	asking sync.Mutex // held while the server is asked
	known  atomic.Pointer[locksFound]
}

// locksFound are the sessions that locked events at a time, by schema.
type locksFound struct {
	holders map[string][]string
	asked   time.Time
}

// holdersOf returns the sessions that lock the events of schema, as far as known. If it knows of a lock, but the
// knowledge is old, it asks the server again.
func (l *tenantLocks) holdersOf(ctx context.Context, schema string) ([]string, error) {
	known := l.known.Load()
	if known == nil || len(known.holders[schema]) == 0 {
		return nil, nil
	}
	known, err := l.find(ctx, time.Now().Add(-lockedAge))
	if err != nil {
		return nil, err
	}
	return known.holders[schema], nil
}

// find returns the locked tenants as they were at some time after since.
func (l *tenantLocks) find(ctx context.Context, since time.Time) (*locksFound, error) {
	l.asking.Lock()
	defer l.asking.Unlock()
	if known := l.known.Load(); known != nil && known.asked.After(since) {
		return known, nil
	}
	locks := &locksFound{holders: make(map[string][]string), asked: time.Now()}
	rows, _ := l.pool.Query(ctx, queries.Text("locked_events"), pgx.QueryExecModeExec)
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
	l.known.Store(locks)
	return locks, nil
}

// errLockedBy is the error about a tenant whose events these sessions lock.
func errLockedBy(holders []string) error {
	return fmt.Errorf("%w by %s", tenancy.ErrLocked, strings.Join(holders, ", "))
}

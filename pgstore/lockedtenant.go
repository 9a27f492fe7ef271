package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// stateLockTimeout is the SQLSTATE of a wait for a lock that was longer than lock_timeout.
const stateLockTimeout = "55P03"

// locked returns an error that names the sessions that lock the tenant's events, if err is a lock time-out of a read. Other
// errors are returned as they are. The fault is that tenant's alone, not the server's.
func (t *Tenant) locked(ctx context.Context, err error) error {
	if !isState(err, stateLockTimeout) {
		return err
	}
	who := "by a session that is gone by now"
	if holders, findErr := t.store.lockHolders(ctx, []*Tenant{t}); findErr == nil && len(holders[t.name]) > 0 {
		who = "by " + strings.Join(holders[t.name], ", ")
	}
	return &engine.Fault{Class: engine.Infrastructure, Err: fmt.Errorf("%w %s: %w", projection.ErrTenantLocked, who, err)}
}

// lockHolders returns the sessions that lock events, by tenant.
func (s *Store) lockHolders(ctx context.Context, tenants []*Tenant) (map[string][]string, error) {
	names := make(map[string]string, len(tenants))
	schemas := make([]string, len(tenants))
	for i, t := range tenants {
		schemas[i], names[t.schema] = t.schema, t.name
	}
	rows, err := s.pool.Query(ctx, lockedTenants, pgx.QueryExecModeExec, schemas)
	if err != nil {
		return nil, err
	}
	holders := make(map[string][]string)
	var schema, application string
	var pid *int32
	_, err = pgx.ForEachRow(rows, []any{&schema, &pid, &application}, func() error {
		who := "a prepared transaction"
		if pid != nil {
			who = fmt.Sprintf("backend %d", *pid)
		}
		if application != "" {
			who += fmt.Sprintf(" (%s)", application)
		}
		if name := names[schema]; !slices.Contains(holders[name], who) {
			holders[name] = append(holders[name], who)
		}
		return nil
	})
	return holders, err
}

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tenancy"
)

var dataFaults = []fault{
	{
		name:    "an append stays open",
		expects: "its tenant waits at the gap, and applies later events when the append has ended",
		reach:   reachData, weight: 3, least: time.Second, most: 4 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error {
			return s.appendOpen(func(ctx context.Context, tx pgx.Tx) error {
				s.wait(s.lasts)
				if s.rnd.IntN(2) == 0 {
					return tx.Rollback(ctx)
				}
				return tx.Commit(ctx)
			})
		},
	},
	{
		name:    "a prepared transaction stays open",
		expects: "its tenant waits at the gap until the transaction is resolved",
		reach:   reachData, weight: 2, least: time.Second, most: 4 * time.Second, alone: 2 * time.Second,
		strike: (*strike).leavePrepared,
	},
	{
		name:    "another session locks the read model",
		expects: "handlers wait for the lock; no event is charged with a failure",
		reach:   reachData, weight: 2, least: time.Second, most: 4 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error {
			// it fails during an outage
			_ = s.whileLocked("public.applied in exclusive mode", 5*time.Second, func() error {
				s.wait(s.lasts)
				return nil
			})
			return nil
		},
	},
	{
		name:    "another session locks a tenant's events",
		expects: "the other tenants continue",
		reach:   reachData, weight: 2, least: time.Second, most: 4 * time.Second, alone: 5 * time.Second,
		strike: (*strike).lockTenant,
	},
}

// whileLocked calls do while the superuser holds a lock on a table.
func (s *strike) whileLocked(lock string, timeout time.Duration, do func() error) error {
	tx, err := s.admin.Begin(s.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(s.ctx)) }()
	if _, err := tx.Exec(s.ctx, fmt.Sprintf("set local lock_timeout = %d; lock table %s",
		timeout.Milliseconds(), lock)); err != nil {
		return err
	}
	return do()
}

// lockTenant rewrites a tenant's events and then locks them. Alone, it checks that the other tenants' events are
// handled meanwhile.
func (s *strike) lockTenant() error {
	at := s.rnd.IntN(len(tenants))
	locked := tenants[at]
	if !s.alone {
		_ = s.exec("vacuum full " + eventsOf(locked))
	}
	return s.ifAlone(s.whileLocked(eventsOf(locked)+" in access exclusive mode", 5*time.Second, func() error {
		if !s.alone {
			s.wait(s.lasts)
			return nil
		}
		var soon int
		var late []error
		err := s.repeat(0, 1, func() error {
			at++
			if other := tenants[at%len(tenants)]; other == locked {
				return nil
			} else if err := s.handledSoon(other); err != nil {
				late = append(late, err)
			} else {
				soon++
			}
			return nil
		})
		if len(late) > soon { // one may be late because the machine is busy
			err = errors.Join(append(late, err)...)
		}
		return err
	}))
}

// handledSoon appends an event and waits until every projection of its tenant has handled it. Its limit is far more
// than that takes, and less than a query may wait for a lock.
func (s *strike) handledSoon(name string) error {
	tenant, err := s.store.ForTenant(name)
	if err != nil {
		return err
	}
	result, err := tenant.Append(s.ctx, "soon", event.Any, event.Event{Type: typeOdd})
	if err != nil {
		return err
	}
	return until(s.ctx, 2500*time.Millisecond, "an event of "+name+" is handled", func() bool {
		lagging, err := value[int64](s.cluster,
			`select count(*) from millrace.leases l join millrace.projections p using (id)
			where p.tenant = $1 and p.name <> $2 and l.checkpoint < $3`, name, deadly, result.Positions[0])
		return err == nil && lagging == 0
	})
}

// appendOpen appends in a transaction that end ends. During an outage it does nothing.
func (s *strike) appendOpen(end func(ctx context.Context, tx pgx.Tx) error) error {
	tenant, err := s.store.ForTenant(tenants[s.rnd.IntN(len(tenants))])
	if err != nil {
		return err
	}
	err = s.store.Pool().AcquireFunc(s.ctx, func(conn *pgxpool.Conn) error {
		tx, err := conn.Begin(s.ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(s.ctx)) }()
		_, err = tenant.AppendTx(s.ctx, tx, fmt.Sprint("open-", s.rnd.Uint64()), event.Any,
			event.Event{Type: typeOdd})
		if err != nil {
			return err
		}
		return end(s.ctx, tx)
	})
	if !s.alone && (isOutage(err) || errors.Is(err, tenancy.ErrArchived)) {
		return nil
	}
	return err
}

// leavePrepared prepares an append and resolves it later, even if the server has changed meanwhile.
func (s *strike) leavePrepared() error {
	name := fmt.Sprint("chaos-", s.rnd.Uint64())
	s.prepared.Store(name, nil)
	defer s.prepared.Delete(name)
	err := s.appendOpen(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "prepare transaction '"+name+"'")
		return err
	})
	if err != nil {
		return err
	}
	s.wait(s.lasts)
	err = s.resolve([]string{"commit", "rollback"}[s.rnd.IntN(2)], name)
	if isUnknown(err) && !s.alone {
		return nil // it was never prepared, or the answer to the first attempt was lost
	}
	return err
}

// resolve ends a prepared transaction by commit or rollback.
func (c *cluster) resolve(how, name string) error { return c.exec(how + " prepared '" + name + "'") }

// isUnknown reports whether err says that a prepared transaction does not exist.
func isUnknown(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "42704"
}

// resolveLost rolls back the prepared transactions whose resolution was lost with a server.
func (c *cluster) resolveLost() error {
	names, err := rows(c, pgx.RowTo[string], "select gid from pg_prepared_xacts where database = current_database()")
	for _, name := range names {
		if _, pending := c.prepared.Load(name); pending {
			continue // the fault that prepared it will resolve it
		}
		if e := c.resolve("rollback", name); !isUnknown(e) {
			err = errors.Join(err, e)
		}
	}
	return err
}

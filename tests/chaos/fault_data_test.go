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
)

var scanNumber = pgx.RowTo[int64]

var dataFaults = []fault{
	{
		name:    "an append stays open",
		expects: "its tenant waits at the gap, and applies what was appended behind it when it ends",
		reach:   reachData, weight: 3, least: time.Second, most: 4 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error {
			return s.appendOpen(func(ctx context.Context, tx pgx.Tx) error {
				if s.wait(s.lasts); s.rnd.IntN(2) == 0 {
					return tx.Rollback(ctx)
				}
				return tx.Commit(ctx)
			})
		},
		proves: (*strike).progress,
	},
	{
		name:    "a prepared transaction is left behind",
		expects: "its tenant waits at the gap until somebody resolves it",
		reach:   reachData, weight: 2, least: time.Second, most: 4 * time.Second, alone: 2 * time.Second,
		strike: (*strike).leavePrepared,
		proves: (*strike).progress,
	},
	{
		name:    "a stranger locks the read model",
		expects: "handlers wait for it; nothing is counted against an event",
		reach:   reachData, weight: 2, least: time.Second, most: 4 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error {
			tx, err := s.admin.Begin(s.ctx)
			if err != nil {
				return nil // the server is away
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(s.ctx)) }()
			if _, err = tx.Exec(s.ctx, "set local lock_timeout = 5000; lock table public.applied in exclusive mode"); err == nil {
				s.wait(s.lasts)
			}
			return nil
		},
		proves: (*strike).progress,
	},
}

// appendOpen appends in a transaction and leaves its end to somebody else. Where the server is away, nothing is.
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
		if _, _, err = tenant.AppendTx(s.ctx, tx, fmt.Sprint("open-", s.rnd.Uint64()), event.Any, event.Event{Type: typeOdd}); err != nil {
			return err
		}
		return end(s.ctx, tx)
	})
	if s.alone || !isOutage(err) {
		return err
	}
	return nil
}

// leavePrepared prepares an append, and resolves it later, whatever became of the server meanwhile.
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
	if err = s.resolve([]string{"commit prepared", "rollback prepared"}[s.rnd.IntN(2)], name); isUnknown(err) && !s.alone {
		return nil // it was never prepared, or the answer to the first try was lost
	}
	return err
}

func (c *cluster) resolve(how, name string) error { return c.exec(how + " '" + name + "'") }

func isUnknown(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "42704"
}

// resolveLost rolls back prepared transactions that were resolved on a server, which lost that.
func (c *cluster) resolveLost() error {
	names, err := rows(c, pgx.RowTo[string], "select gid from pg_prepared_xacts where database = current_database()")
	for _, name := range names {
		if _, waiting := c.prepared.Load(name); waiting {
			continue // whoever prepared it resolves it
		}
		if one := c.resolve("rollback prepared", name); !isUnknown(one) {
			err = errors.Join(err, one)
		}
	}
	return err
}

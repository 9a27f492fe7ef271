package postgres_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// cancelled is a handler whose statement is cancelled at the poison event, from another session, as often as asked.
func (b *bundle) cancelled(name string, poison int64, often int64, calls *atomic.Int64) kit.BatchFunc {
	return kit.FailsAt(name, kit.Only(poison), func(ctx context.Context, tx kit.Tx, batch int, _ int64) error {
		if batch == 1 && calls.Add(1) > often {
			return nil
		}
		pid := pg(tx).Conn().PgConn().PID()
		done := make(chan error, 1)
		stop, cancel := context.WithCancel(ctx)
		go func() {
			for stop.Err() == nil {
				// It may not have begun yet.
				_, _ = b.store.Pool().Exec(stop, "select pg_cancel_backend($1)", int32(pid))
				kit.Pass(stop, 1e6)
			}
			close(done)
		}()
		defer func() { cancel(); <-done }()
		return tx.Exec(ctx, "select pg_sleep(60)")
	})
}

// An operator who cancels a statement blames no event; what cancels itself each time is to blame.
func TestCancelledStatementIsTriedOnceMoreAndThenCounted(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	poison := b.Append("a", 20).Positions[12]
	var once, twice, always atomic.Int64
	rt := b.Runtime(millrace.Config{},
		millrace.Projection{Name: "once", MaxEvents: 8, Retry: kit.Soon(0), Handler: b.Store.Batch(b.cancelled("once", poison, 1, &once))},
		millrace.Projection{Name: "twice", MaxEvents: 8, Retry: kit.Soon(1), Handler: b.Store.Batch(b.cancelled("twice", poison, 2, &twice))},
		millrace.Projection{Name: "always", MaxEvents: 8, Retry: kit.Soon(1), Handler: b.Store.Batch(kit.FailsAt("always", kit.Only(poison), func(ctx context.Context, tx kit.Tx, batch int, _ int64) error {
			if batch == 1 {
				always.Add(1)
			}
			return tx.Exec(ctx, "set local statement_timeout = 20; select pg_sleep(60)")
		}))})
	b.RunUntilIdle(rt)
	b.Verify("once")
	b.Verify("twice")
	b.Verify("always", poison)
	if once.Load() != 2 || twice.Load() != 3 || always.Load() != 3 {
		t.Errorf("called for the event alone %d, %d and %d times, want 2, 3 and 3", once.Load(), twice.Load(), always.Load())
	}
	if letters := b.Letters("always"); len(letters) != 1 || letters[0].Attempts != 2 || !strings.Contains(letters[0].Error, "57014") {
		t.Errorf("parked %+v", letters)
	}
}

// A statement that only the connection or only the server remembers is not an event's fault.
func TestStatementCachesThatDoNotFitBlameNoEvent(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.exec("create table model (n int)")
	b.exec("insert into model values (1)")
	open := func(change func(config *pgxpool.Config)) *pgstore.Store {
		return b.open(kit.WithSetting(t, b.dsn, "pool_max_conns", "4"), change, pgstore.Options{SessionDSN: b.dsn})
	}
	for name, test := range map[string]struct {
		store  *pgstore.Store
		handle func(ctx context.Context, tx kit.Tx, e event.Envelope) error
	}{
		"26000": {open(func(config *pgxpool.Config) {
			config.AfterRelease = func(conn *pgx.Conn) bool {
				_, err := conn.Exec(context.Background(), "discard all", pgx.QueryExecModeSimpleProtocol)
				return err == nil
			}
		}), func(context.Context, kit.Tx, event.Envelope) error { return nil }},
		"0A000": {open(func(*pgxpool.Config) {}), func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			if e.Version%5 == 0 {
				// Of a deployment, between two batches: all connections know the statement by then.
				if _, err := b.store.Pool().Exec(ctx, "alter table model add column if not exists c"+strings.Repeat("x", int(e.Version))+" int"); err != nil {
					return err
				}
			}
			rows, err := pg(tx).Query(ctx, "select * from model")
			if err != nil {
				return err
			}
			rows.Close()
			return rows.Err()
		}},
		"42P05": {open(func(*pgxpool.Config) {}), func(ctx context.Context, tx kit.Tx, _ event.Envelope) error {
			return tx.Exec(ctx, "do $$ begin execute 'prepare hidden as select 1'; end $$")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b.Append(name, 20)
			var met atomic.Int64
			rt := b.Running(millrace.Config{Store: test.store}, millrace.Projection{Name: name, MaxEvents: 1, Retry: kit.Soon(0),
				Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
					err := tx.Record(ctx, name, events...)
					if err == nil {
						err = test.handle(ctx, tx, events[0])
					}
					if err != nil && strings.Contains(err.Error(), name) {
						met.Add(1)
					}
					return err
				})})
			b.MustCatchUp(rt, name)
			if met.Load() == 0 {
				t.Error("it was never met: that tries nothing")
			}
			t.Logf("met %d times", met.Load())
		})
	}
}

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestReadOnlyDatabaseParksNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	dsn, err := pgtest.WithSetting(b.dsn, "default_transaction_read_only", "off")
	b.Must(err)
	writer, err := pgstore.Open(b.Ctx, dsn, pgstore.Options{})
	b.Must(err)
	defer writer.Close()
	b.Append("a", 10)
	p := millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Record("p")), Retry: kit.Soon(0)}
	rt := b.Running(millrace.Config{HeartbeatInterval: 100 * time.Millisecond, LeaseDuration: time.Second}, p)
	readOnly := func(value string) {
		for _, sql := range []string{
			"do $$ begin execute format('alter database %I set default_transaction_read_only = " + value + "', current_database()); end $$",
			"select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
		} {
			if _, err := writer.Pool().Exec(b.Ctx, sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func() event.Appended {
		result, err := writer.Append(b.Ctx, "b", event.Any, event.Event{Type: "counted"})
		b.Must(err)
		return result
	}
	b.Reaches(rt, "p", 10)
	readOnly("on")
	for range 5 {
		write()
	}
	b.Eventually("the runtime notices", func() bool {
		_, err := rt.Status(b.Ctx) // no connection of the pool's is let through that takes no writes
		return err != nil && strings.Contains(err.Error(), "default_transaction_read_only")
	})
	readOnly("off")
	b.Reaches(rt, "p", write().Positions[0])
	b.Verify("p")
	if letters := b.Letters("p"); len(letters) != 0 {
		t.Errorf("dead letters %v", letters)
	}
}

func TestManyProjectionsLeaveAServerThatIsAwayAlone(t *testing.T) {
	t.Parallel()
	const n = 300
	server := pgtest.Private(t, pgtest.Options{})
	b := setupAt(t, server.DSN("postgres"), pgstore.Options{})
	config := b.store.Pool().Config()
	var connects, blocked atomic.Int64
	config.MaxConns = 8
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		connects.Add(1)
		return nil
	}
	pool, err := pgxpool.NewWithConfig(b.Ctx, config)
	b.Must(err)
	defer pool.Close()
	store, err := pgstore.OpenPool(b.Ctx, pool, pgstore.Options{})
	b.Must(err)
	defer store.Close()
	killed := make(chan struct{})
	var projections []millrace.Projection
	for i := range n {
		name := fmt.Sprint("p", i)
		projections = append(projections, millrace.Projection{Name: name, Retry: kit.Soon(0), Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			blocked.Add(1)
			<-killed
			return tx.Record(ctx, name, events...)
		})})
	}
	b.Append("a", 3)
	rt := b.Runtime(millrace.Config{Store: store}, projections...)
	defer b.Start(rt)()
	b.Eventually("batches are under way, and all others wait for their turn", func() bool {
		status, err := rt.Status(b.Ctx)
		return err == nil && blocked.Load() > 0 && !slices.ContainsFunc(status.Projections, func(p millrace.ProjectionStatus) bool {
			return p.State != millrace.StateLive
		})
	})
	err = server.Kill()
	connects.Store(0)
	close(killed)
	b.Eventually("every projection is told", func() bool { return connects.Load() > n/2 })
	<-time.After(time.Second)
	before := connects.Load()
	<-time.After(3 * time.Second)
	if more := connects.Load() - before; before > 2*n || more > n/3 {
		t.Errorf("%d connections tried, and %d more later: %d projections do not wait", before, more, n)
	}
	b.Must(errors.Join(err, server.StartAgain(b.Ctx)))
	for _, p := range projections {
		b.Reaches(rt, p.Name, 3)
		b.Verify(p.Name)
	}
	b.exec("do $$ begin if exists (select from millrace.dead_letters) then raise 'something is parked'; end if; end $$")
}

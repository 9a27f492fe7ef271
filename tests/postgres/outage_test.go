package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// sensitive are projections that park an event after its first or second counted failure, with batches of one event and
// of several.
func sensitive(b *bundle) (projections []millrace.Projection, names []string) {
	for name, p := range map[string]millrace.Projection{
		"p": {MaxEvents: 1, Retry: kit.Soon(0)}, "q": {MaxEvents: 1, Retry: kit.Soon(1)},
		"r": {MaxEvents: 10, Retry: kit.Soon(1)},
		"s": {
			MaxEvents: 10, Retry: kit.Soon(0), OnFailure: projection.ActionParkStream,
			Replay: projection.ReplayPolicy{Interval: 50 * time.Millisecond},
		},
	} {
		p.Name, p.Handler = name, b.Store.Batch(kit.Record(name))
		projections, names = append(projections, p), append(names, name)
	}
	return projections, names
}

func TestDatabaseRestartsUnderLoadLoseParkAndDoubleNothing(t *testing.T) {
	b, server := private(t, pgtest.Options{})
	projections, names := sensitive(b)
	// The control takes the first outage for its own failure.
	var away atomic.Bool
	projections = append(projections, millrace.Projection{Name: "control",
		OnFailure: projection.ActionPark, MaxEvents: 10, Retry: kit.Soon(1),
		Handler: b.Store.Batch(kit.FailsAt("control",
			func(int64) bool { return away.Load() },
			func(context.Context, kit.Tx, int, int64) error { return errors.New("server is away") }))})
	rt := b.Running(millrace.Config{}, projections...)
	stop := b.AppendThrough(3)
	progress := func() {
		before := b.Status(rt, "p").Position
		b.Eventually("events are applied", func() bool { return b.Status(rt, "p").Position > before+50 })
	}
	progress()
	away.Store(true)
	for _, mode := range []string{"fast", "immediate", "fast"} {
		b.Must(server.Restart(b.Ctx, mode))
		progress()
		b.Eventually("what is counted is parked", func() bool { return b.Status(rt, "control").Parked > 0 })
		away.Store(false)
	}
	b.Must(server.Kill())
	b.Must(server.StartAgain(b.Ctx))
	progress()
	t.Logf("%d events appended", stop())
	b.MustCatchUp(rt, names...)
	b.Reaches(rt, "control", b.Head())
	var parked []int64
	for _, letter := range b.DeadLettersOf("control") {
		parked = append(parked, letter.Position)
	}
	b.Verify("control", parked...)
	if b.Check("control") == nil {
		t.Errorf("%d events parked, and the check does not notice", len(parked))
	}
}

func TestTerminatedSessionsLoseParkAndDoubleNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	projections, names := sensitive(b)
	rt := b.Running(millrace.Config{}, projections...)
	b.Reaches(rt, "p", b.Append("a", 1).Positions[0]) // a fault before it runs is an error of Run
	stop := b.AppendThrough(4)
	killer, _ := b.session("select")
	tick := time.NewTicker(60 * time.Millisecond)
	defer tick.Stop()
	for range 20 {
		_, err := killer.Exec(b.Ctx, `select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and random() < 0.4`)
		b.Must(err)
		<-tick.C
	}
	t.Logf("%d events appended", stop())
	b.MustCatchUp(rt, names...)
}

func TestReadOnlyDatabaseParksNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	writer := b.open(kit.WithSetting(t, b.dsn, "default_transaction_read_only", "off"), nil, pgstore.Options{})
	b.Append("a", 10)
	p := millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Record("p")), Retry: kit.Soon(0)}
	rt := b.Running(millrace.Config{Store: tuning.Settings{Heartbeat: 100 * time.Millisecond},
		LeaseDuration: time.Second}, p)
	readOnly := func(value string) {
		for _, sql := range []string{
			"do $$ begin execute format('alter database %I set default_transaction_read_only = " + value +
				"', current_database()); end $$",
			"select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
		} {
			_, err := writer.Pool().Exec(b.Ctx, sql)
			b.Must(err)
		}
	}
	write := func() int64 { return b.AppendTo(kit.PgStore{Store: writer}, "b", 5) }
	b.Reaches(rt, "p", 10)
	readOnly("on")
	write()
	b.Eventually("the runtime notices", func() bool {
		_, err := rt.Status(b.Ctx, admin.StatusFilter{}) // the pool refuses connections that cannot write
		return err != nil && strings.Contains(err.Error(), "default_transaction_read_only")
	})
	readOnly("off")
	b.Applied(rt, write(), "p")
	if letters := b.DeadLettersOf("p"); len(letters) != 0 {
		t.Errorf("dead letters %v", letters)
	}
}

func TestManyProjectionsDoNotFloodAnUnreachableServer(t *testing.T) {
	t.Parallel()
	const n = 300
	b, server := private(t, pgtest.Options{})
	var connects, blocked atomic.Int64
	store := b.open(b.dsn, func(config *pgxpool.Config) {
		config.MaxConns = 8
		config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			connects.Add(1)
			return nil
		}
	}, pgstore.Options{})
	killed := make(chan struct{})
	var projections []millrace.Projection
	for i := range n {
		name := fmt.Sprint("p", i)
		projections = append(projections, millrace.Projection{Name: name,
			Retry: kit.Soon(0),
			Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
				blocked.Add(1)
				<-killed
				return tx.Record(ctx, name, events...)
			})})
	}
	b.Append("a", 3)
	rt := b.Running(millrace.Config{Store: store}, projections...)
	b.AllLive(rt, n)
	b.Eventually("batches are in progress, and all others wait", func() bool { return blocked.Load() > 0 })
	err := server.Kill()
	connects.Store(0)
	close(killed)
	b.Eventually("every projection fails", func() bool { return connects.Load() > n/2 })
	<-time.After(time.Second)
	before := connects.Load()
	<-time.After(3 * time.Second)
	if more := connects.Load() - before; before > 2*n || more > n/3 {
		t.Errorf("%d connections tried, and %d more later: %d projections do not wait", before, more, n)
	}
	b.Must(errors.Join(err, server.StartAgain(b.Ctx)))
	for _, p := range projections {
		b.Applied(rt, 3, p.Name)
	}
	b.exec("do $$ begin if exists (select from millrace.dead_letters) then raise 'something is parked'; end if; end $$")
}

// WaitFor and RunUntilIdle read the row of a projection that runs elsewhere, and Tick the row of its own.
func TestWaitsAndTicksSurviveAnOutage(t *testing.T) {
	b, server := private(t, pgtest.Options{})
	last := b.AppendTo(b.Store, "a", 1)
	open, waits := make(chan struct{}), millrace.Projection{Name: "waits", Handler: b.Store.Batch(kit.Nothing)}
	blocks := waits
	blocks.Handler = b.Store.Batch(func(ctx context.Context, _ kit.Tx, _ []event.Envelope) error {
		select {
		case <-open:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	ticks := blocks
	ticks.Name = "ticks"
	b.Running(millrace.Config{}, blocks)
	watcher, idle, ticker := b.Runtime(millrace.Config{}, waits), b.Runtime(millrace.Config{}, waits),
		b.Runtime(millrace.Config{}, ticks)
	b.Eventually("another node runs it", func() bool { return b.Status(watcher, "waits").Owner != "" })
	ended := make(chan error, 3)
	for name, wait := range map[string]func() error{
		"WaitFor":      func() error { return watcher.WaitFor(b.Ctx, projection.ID{Name: "waits"}, last) },
		"RunUntilIdle": func() error { _, err := idle.RunUntilIdle(b.Ctx); return err },
		"Tick": func() error {
			got, err := ticker.Tick(b.Ctx, projection.ID{Name: "ticks"})
			if err == nil && got.Processed != 1 {
				err = fmt.Errorf("got %+v", got)
			}
			return err
		},
	} {
		go func() {
			if err := wait(); err != nil {
				ended <- fmt.Errorf("%s: %w", name, err)
				return
			}
			ended <- nil
		}()
	}
	b.Eventually("all run",
		func() bool { return b.Status(watcher, "ticks").Owner != "" && len(b.Summary(watcher).Nodes) == 3 })
	b.Must(server.Kill())
	select {
	case err := <-ended:
		t.Errorf("it ended during the outage: %v", err)
		ended <- err
	case <-time.After(time.Second): // the rows could not be read several times
	}
	b.Must(server.StartAgain(b.Ctx))
	close(open)
	for range cap(ended) {
		b.Must(<-ended)
	}
}

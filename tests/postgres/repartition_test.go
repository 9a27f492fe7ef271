package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

var idOfP = millrace.ProjectionID{Name: "p"}

// partitions returns how many partitions p has. Together they must have all slots once.
func (b *bundle) partitions() (n int) {
	b.T.Helper()
	var rows, numbers int
	var slots int64
	b.Must(b.store.Pool().QueryRow(b.Ctx,
		`select count(*), max(partitions), count(distinct partitions), sum(slot_to - slot_from) from millrace.projections where name = 'p'`).
		Scan(&rows, &n, &numbers, &slots))
	if rows != n || numbers != 1 || slots != 1<<28 {
		b.T.Errorf("%d rows with %d numbers of partitions, the highest %d, and %d slots", rows, numbers, n, slots)
	}
	return n
}

// exactly waits until p has applied each event of the default tenant, and checks that it applied each once, and those
// of each stream in order.
func (b *bundle) exactly() {
	b.T.Helper()
	b.Eventually("all events are applied", func() bool {
		return value[bool](b, "select (select count(*) from applied) >= (select count(*) from millrace_default.events)")
	})
	for what, sql := range map[string]string{
		"events that were applied more than once": "select count(*) from (select from applied group by position having count(*) > 1) x",
		"events that were not applied":            "select count(*) from millrace_default.events e where not exists (select from applied a where a.position = e.global_seq)",
		"events that were applied out of order":   "select count(*) from (select version, lag(version) over (partition by stream order by at) as before from applied) x where version < before",
	} {
		if n := value[int](b, sql); n != 0 {
			b.T.Errorf("%d %s", n, what)
		}
	}
}

func TestResplitDoesNotWaitForHandlers(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	entered, release := make(chan struct{}, 100), make(chan struct{})
	var armed atomic.Bool
	armed.Store(true)
	// The handler ignores the end of its context, and has locked the read model.
	deaf := b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
		err := tx.Record(ctx, "p", events...)
		if armed.Load() {
			entered <- struct{}{}
			<-release
		}
		return err
	})
	rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p", Timeout: 10 * time.Minute, Handler: deaf})
	b.Append("s", 3)
	<-entered
	armed.Store(false)
	b.InTime("the re-split", func() { b.Must(rt.Repartition(b.Ctx, idOfP, 4)) })
	b.Reaches(rt, "p", b.Head())
	close(release)
	b.exactly()
}

// While a commit is in progress, the re-split waits, and the other partitions go on.
func TestResplitWaitsForACommitInProgress(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.Running(millrace.Config{}, b.Recorders("p")...)
	b.Reaches(rt, "p", 0)
	b.Must(rt.Repartition(b.Ctx, idOfP, 2))
	stream := func(partition int) string {
		for i := 0; ; i++ {
			s := fmt.Sprint("s", i)
			if value[int](b,
				"select partition from millrace.projections where ('x' || left(md5($1), 7))::bit(28)::integer between slot_from and slot_to - 1", s) == partition {
				return s
			}
		}
	}
	one, two := stream(1), stream(2)
	// A commit whose session is frozen.
	release := b.lock("select from millrace.leases l join millrace.projections p using (id) where p.partition = 1 for no key update of l")
	ctx, cancel := context.WithTimeout(b.Ctx, 3*time.Second)
	defer cancel()
	refused := make(chan error, 1)
	go func() { refused <- rt.Repartition(ctx, idOfP, 5) }()
	for i := 0; ctx.Err() == nil; i++ {
		b.Append(two, 1)
		b.Must(rt.WaitFor(b.Ctx, millrace.ProjectionID{Name: "p", Partition: 2}, b.Head()))
	}
	if err := <-refused; !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "lock timeout") ||
		b.partitions() != 2 {
		t.Errorf("%v; %d partitions", err, b.partitions())
	}
	done := make(chan error, 1)
	go func() { done <- rt.Repartition(b.Ctx, idOfP, 5) }()
	b.Append(one, 5)
	release()
	if err := <-done; err != nil || b.partitions() != 5 {
		t.Errorf("%v; %d partitions", err, b.partitions())
	}
	b.exactly()
}

func TestResplitOfALockedTenant(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	var mended atomic.Bool
	poison := func(position int64) bool { return position == 3 && !mended.Load() }
	rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p",
		Retry: kit.Soon(2), OnFailure: projection.ActionStop,
		Handler: b.Store.Batch(kit.FailsAt("p", poison, kit.Fails))})
	b.Append("a", 2)
	b.Reaches(rt, "p", 2)
	release := b.lock("lock table millrace_default.events in access exclusive mode")
	b.InTime("a re-split reads no events if none fails", func() { b.Must(rt.Repartition(b.Ctx, idOfP, 2)) })
	release()
	b.Append("b", 2)
	b.Is(rt, "p", admin.StateFailed)
	release = b.lock("lock table millrace_default.events in access exclusive mode")
	done := make(chan error, 1)
	go func() { done <- rt.Repartition(b.Ctx, idOfP, 4) }()
	select {
	case err := <-done:
		t.Fatalf("it did not find out the stream of the failed event: %v", err)
	case <-time.After(2 * time.Second):
	}
	release()
	b.Must(<-done)
	mended.Store(true)
	b.Resume(rt, "p")
	b.Reaches(rt, "p", b.Head())
	b.exactly()
}

func TestResplitWithAnOpenPreparedAppend(t *testing.T) {
	t.Parallel()
	b, _ := private(t, pgtest.Options{})
	rt := b.Running(millrace.Config{}, b.Recorders("p")...)
	b.Append("a", 3)
	b.Reaches(rt, "p", b.Head())
	conn, _ := b.session("select")
	tx, err := conn.Begin(b.Ctx)
	b.Must(err)
	_, err = b.store.AppendTx(b.Ctx, tx, "prepared", event.Any, event.Event{Type: "counted"})
	b.Must(err)
	_, err = tx.Exec(b.Ctx, "prepare transaction 'app'")
	b.Must(err)
	b.Append("b", 3)
	for _, n := range []int{4, 1, 3} {
		b.InTime("the re-split", func() { b.Must(rt.Repartition(b.Ctx, idOfP, n)) })
	}
	b.exec("commit prepared 'app'")
	b.store.Wake()
	b.Reaches(rt, "p", b.Head())
	b.exactly()
}

// After a restore, events get positions that a partition has passed. They must not be taken for those that were
// handled.
func TestRestoreBelowAPassedPositionIsNoticed(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p",
		Partitions: 2, Retry: kit.Soon(1), OnFailure: projection.ActionStop,
		Handler: b.Store.Batch(kit.FailsAt("p", kit.Only(1), kit.Fails))})
	stop := b.Start(rt)
	b.Append("bad", 1)
	for i := range 20 {
		b.Append(fmt.Sprint("s", i), 5)
	}
	b.Eventually("the other partition has handled its events, and saved its checkpoint", func() bool {
		return value[bool](b, "select coalesce(max(checkpoint) = 101, false) from millrace.leases")
	})
	b.Must(rt.Repartition(b.Ctx, idOfP, 1))
	stop()
	b.Must(b.Store.Truncate(b.Ctx, 50))
	if checkpoint := value[int](b, "select checkpoint from millrace.leases"); checkpoint > 50 {
		t.Fatalf("the checkpoint is %d: the test shows nothing", checkpoint)
	}
	rt = b.Running(millrace.Config{}, b.Recorders("p")...)
	b.Resume(rt, "p")
	b.Eventually("the restore is noticed", func() bool {
		s := b.Status(rt, "p")
		return s.State == admin.StateFailed && strings.Contains(s.Reason, tenancy.ErrRestored.Error())
	})
}

// The process that splits anew is killed, its connection is cut, and answers to its commits are lost, while events are
// appended and others are rolled back.
func TestResplitsSurviveTheEndOfTheirConnections(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	for range 2 {
		b.Start(b.Another(millrace.Config{}, b.Recorders("p")...))
	}
	rt := b.Running(millrace.Config{}, b.Recorders("p")...)
	b.Reaches(rt, "p", 0)
	ctx, stop := context.WithCancel(b.Ctx)
	var group sync.WaitGroup
	rolledBack := errors.New("rolled back")
	for w := range 2 {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				err := b.store.InTx(b.Ctx, func(ctx context.Context, tx pgx.Tx) error {
					if _, err := b.store.AppendTx(ctx, tx, fmt.Sprint("s", w, i%9), event.Any,
						event.Event{Type: "counted"}); err != nil {
						return err
					}
					if i%4 == 0 {
						return rolledBack
					}
					return nil
				})
				if err != nil && !errors.Is(err, rolledBack) {
					t.Error(err)
				}
				kit.Pass(ctx, 2*time.Millisecond)
			}
		})
	}
	var lost, cut atomic.Int64
	forgetful := b.Runtime(millrace.Config{Store: b.forgetful(func() bool { return lost.Add(1)%2 == 0 })},
		b.Recorders("p")...)
	b.exec("create table cut (n int)")
	other := b.Runtime(millrace.Config{Store: b.open(kit.WithSetting(t, b.dsn, "application_name", "splitter"), nil,
		pgstore.Options{})}, b.Recorders("p")...)
	group.Go(func() {
		for ctx.Err() == nil {
			cut.Add(value[int64](b,
				"select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'splitter' and state <> 'idle' and datname = current_database()"))
			kit.Pass(ctx, 3*time.Millisecond)
		}
	})
	failures := 0
	for i := range 60 {
		n := 1 + i*7%16
		err := []*millrace.Runtime{forgetful, other}[i%2].Repartition(b.Ctx, idOfP, n)
		if err != nil {
			failures++
		}
		if now := b.partitions(); err == nil && now != n {
			t.Errorf("%d partitions, want %d", now, n)
		}
	}
	stop()
	group.Wait()
	t.Logf("%d re-splits failed, %d connections were cut", failures, cut.Load())
	if failures < 10 || cut.Load() < 5 {
		t.Errorf("%d re-splits failed, %d connections were cut: the test shows nothing", failures, cut.Load())
	}
	b.exactly()
}

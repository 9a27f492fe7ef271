package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// fanoutOlder is how many events there are before.
const fanoutOlder = 5000

// fanoutWorkers is how many of the independent loops work at once, on a connection each. millrace has as many batches.
const fanoutWorkers = 8

// fanoutAhead is how many events the writer may be ahead of the projections.
const fanoutAhead = 20

var fanoutScenario = scenario{
	name: "fanout",
	about: `One tenant with many projections. One writer appends events, at most 20 of which the projections have not applied. Measured are the
		applications per second from the first append to the last application, and how many rows of events the server read for each
		event, with those that the planner looked at. Each independent loop has a connection of its own, which a NOTIFY in the transaction of the append wakes. Loops with a
		pool share 8 connections, and the writer wakes them within the process. Both kinds read after their own checkpoint, and apply what
		they have read in one round trip.`,
	cases: func(o sizeOptions) []benchCase {
		return []benchCase{{
			name:    fmt.Sprintf("%d projections, %s events", o.fanoutProjections, thousands(int64(o.fanoutEvents))),
			metrics: []metric{{"applications/s", "", higher, true}, {"rows read/event", "", lower, false}},
			goals: []goal{
				{contender: "millrace", metric: "applications/s", to: "independent loops", atLeast: 3},
				// Each event is read once. The statistics of the server also count the rows that the planner looks at.
				{contender: "millrace", metric: "rows read/event", atMost: 10},
			},
			prepare: func(ctx context.Context, e *env) ([]contender, error) { return fanoutContenders(ctx, e, o) },
		}}
	},
}

// fanout runs the contenders of fanout.
type fanout struct {
	*env
	store    *pgstore.Store
	tenant   *pgstore.Tenant
	o        sizeOptions
	appended int // in all rounds
	seen     []tally
	applied  *progress // by millrace, in all rounds
}

func fanoutContenders(ctx context.Context, e *env, o sizeOptions) ([]contender, error) {
	store, err := e.store(ctx, 2, pgstore.Options{}, nil)
	if err != nil {
		return nil, err
	}
	tenants, err := e.tenants(ctx, store, 1)
	if err != nil {
		return nil, err
	}
	// With many rows, the planner reads them by the index. The projections begin after them.
	if err := e.fill(ctx, tenants[0], fanoutOlder); err != nil {
		return nil, err
	}
	f := &fanout{
		env: e, store: store, tenant: tenants[0], o: o, seen: make([]tally, o.fanoutProjections),
		applied: newProgress(),
	}
	return []contender{
		{"independent loops", f.loops("independent loops", f.runIndependent)},
		{"loops with a pool", f.loops("loops with a pool", f.runPooled)},
		{"millrace", f.millrace},
	}, nil
}

// append appends the events of a round, and calls appended after each. applied counts from before on.
func (f *fanout) append(ctx context.Context, appendOne appendFunc, applied *progress, before int,
	appended func()) error {
	for i := range f.o.fanoutEvents {
		if _, err := appendOne(ctx, fmt.Sprint("fanout", i%streamsPerWriter)); err != nil {
			return err
		}
		f.appended++
		appended()
		if err := applied.atLeast(ctx, (before+i-fanoutAhead)*f.o.fanoutProjections); err != nil {
			return err
		}
	}
	return applied.wait(ctx, (before+f.o.fanoutEvents)*f.o.fanoutProjections)
}

// rowsRead returns how many rows of events the server has read so far. A session reports them when it ends, at the
// latest.
func (f *fanout) rowsRead(ctx context.Context) (n int64, err error) {
	err = f.Pool.QueryRow(ctx, `select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables
		where schemaname = $1 and relname = 'events'`, f.tenant.EventsSchema()).Scan(&n)
	return n, err
}

// sessionsEnded waits until only the sessions of the pool of the env are left.
func (f *fanout) sessionsEnded(ctx context.Context) error {
	var failed error
	err := until(ctx, "the sessions have ended", func() bool {
		var n int
		failed = f.Pool.QueryRow(ctx, "select count(*) from pg_stat_activity where application_name = $1",
			fanoutApplication).Scan(&n)
		return failed != nil || n == 0
	})
	return errors.Join(err, failed)
}

// fanoutApplication is the name of the sessions of a round.
const fanoutApplication = "bench_fanout"

// apart calls run with an env of its own, and returns when all its sessions have ended and reported what they read.
func (f *fanout) apart(ctx context.Context, run func(ctx context.Context, e *env) error) error {
	dsn, err := withApplication(f.dsn, fanoutApplication)
	if err != nil {
		return err
	}
	own := &env{Pool: f.Pool, dsn: dsn}
	err = run(ctx, own)
	err = errors.Join(err, own.close(ctx))
	if err != nil {
		return err
	}
	return f.sessionsEnded(ctx)
}

// round measures run, and returns the figures of applying all events of a round.
func (f *fanout) round(ctx context.Context, run func(ctx context.Context,
	e *env) (time.Duration, error)) (figures, error) {
	before, err := f.rowsRead(ctx)
	if err != nil {
		return nil, err
	}
	var took time.Duration
	err = f.apart(ctx, func(ctx context.Context, e *env) (err error) {
		took, err = run(ctx, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	after, err := f.rowsRead(ctx)
	n := f.o.fanoutEvents
	return figures{float64(n*f.o.fanoutProjections) / took.Seconds(), float64(after-before) / float64(n)}, err
}

// millrace runs all projections, which are live.
func (f *fanout) millrace(ctx context.Context, _ int) (figures, verify, error) {
	// The events of the rounds of the other contender are applied before.
	err := f.apart(ctx, func(ctx context.Context, e *env) error {
		return f.runFor(ctx, e, func(context.Context, *pgstore.Tenant) error { return nil })
	})
	if err != nil {
		return nil, nil, err
	}
	measured, err := f.round(ctx, func(ctx context.Context, e *env) (took time.Duration, err error) {
		err = f.runFor(ctx, e, func(ctx context.Context, tenant *pgstore.Tenant) error {
			begin := time.Now()
			err := f.append(ctx, appendTo(tenant), f.applied, f.appended, func() {})
			took = time.Since(begin)
			return err
		})
		return took, err
	})
	checks := []verify{f.verify("millrace", f.appended)}
	for i := range f.seen {
		checks = append(checks, f.seen[i].inOrder(f.appended))
	}
	return measured, all(checks...), err
}

// runFor runs all projections on sessions of an env, and calls fn when all events are applied.
func (f *fanout) runFor(ctx context.Context, e *env,
	fn func(ctx context.Context, tenant *pgstore.Tenant) error) (err error) {
	store, err := e.store(ctx, fanoutWorkers+4, pgstore.Options{}, nil)
	if err != nil {
		return err
	}
	tenant, err := store.ForTenant(f.tenant.Name())
	if err != nil {
		return err
	}
	rt, err := millrace.New(millrace.Config{
		Store: store, Tenants: []string{f.tenant.Name()}, MaxBatches: fanoutWorkers,
		Observer: observe.Observer{BatchEnded: func(b observe.Batch) {
			if b.Err == nil {
				f.applied.add(b.Applied)
			}
		}},
	})
	if err != nil {
		return err
	}
	for i := range f.seen {
		handler := func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
			f.seen[i].see(events)
			_, err := tx.Exec(ctx, addTotalSQL, "millrace", 0, i, len(events))
			return err
		}
		if err := rt.Register(millrace.Projection{Name: fmt.Sprint("p", i),
			Start: projection.Start{Position: fanoutOlder + 1}, Handler: pgstore.Batch(handler)}); err != nil {
			return err
		}
	}
	return while(ctx, rt.Run, func() error {
		err := until(ctx, "all projections are live", func() bool { _, live := owned(rt); return live == len(f.seen) })
		if err != nil {
			return err
		}
		if err := f.applied.wait(ctx, f.appended*f.o.fanoutProjections); err != nil {
			return err
		}
		return fn(ctx, tenant)
	})
}

// verify returns a verification that each projection of a contender has applied this number of events.
func (f *fanout) verify(contender string, events int) verify {
	return f.isCount(f.o.fanoutProjections, "projections that applied all",
		"select count(*) from bench.totals where contender = $1 and n = $2", contender, events)
}

// loops returns the round of handwritten loops.
func (f *fanout) loops(kind string, run func(ctx context.Context,
	e *env, name string, positions []int64) (time.Duration, error)) func(ctx context.Context, round int) (figures,
	verify, error) {
	return func(ctx context.Context, round int) (figures, verify, error) {
		name := fmt.Sprint(kind, " ", round)
		var last int64
		if err := f.Pool.QueryRow(ctx, "select max(global_seq) from "+eventsOf(f.tenant)).Scan(&last); err != nil {
			return nil, nil, err
		}
		_, err := f.Pool.Exec(ctx,
			"insert into bench.marks select $1, 0, p, $2 from generate_series(0, $3::int - 1) as p", name, last,
			f.o.fanoutProjections)
		if err != nil {
			return nil, nil, err
		}
		positions := slices.Repeat([]int64{last}, f.o.fanoutProjections)
		measured, err := f.round(ctx, func(ctx context.Context,
			e *env) (time.Duration, error) {
			return run(ctx, e, name, positions)
		})
		return measured, f.verify(name, f.o.fanoutEvents), err
	}
}

// connectLoop returns a connection for loops, with a prepared read.
func (f *fanout) connectLoop(ctx context.Context, e *env) (*pgx.Conn, func(), error) {
	conn, closeConn, err := e.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	_, err = conn.Prepare(ctx, "read", fmt.Sprintf("select "+
		eventColumns+" from "+eventsOf(f.tenant)+" where global_seq > $1 order by global_seq limit %d", handBatch))
	if err != nil {
		closeConn()
	}
	return conn, closeConn, err
}

// runPooled runs loops that share connections, and that the writer wakes.
func (f *fanout) runPooled(ctx context.Context, e *env, name string, positions []int64) (time.Duration, error) {
	p, q := newProgress(), newQueue(len(positions))
	group, working := errgroup.WithContext(ctx)
	for range fanoutWorkers {
		conn, closeConn, err := f.connectLoop(ctx, e)
		if err != nil {
			return 0, errors.Join(err, q.close(group))
		}
		defer closeConn()
		group.Go(func() error {
			return q.work(working, 1, func(woken []int) error {
				i := woken[0]
				n, err := loopOnce(working, conn, name, i, &positions[i])
				p.add(n)
				return err
			})
		})
	}
	writer, closeWriter, err := f.handWriter(ctx, f.tenant, nil, nil)
	if err != nil {
		return 0, errors.Join(err, q.close(group))
	}
	defer closeWriter()
	begin := time.Now()
	err = f.append(working, writer, p, 0, func() {
		for i := range positions {
			q.wake(i)
		}
	})
	return time.Since(begin), errors.Join(err, q.close(group))
}

// runIndependent runs loops with a connection each, on which they listen.
func (f *fanout) runIndependent(ctx context.Context, e *env, name string, positions []int64) (time.Duration, error) {
	p := newProgress()
	group, working := errgroup.WithContext(ctx)
	stopping, stop := context.WithCancel(working)
	defer stop()
	failed := func(err error) (time.Duration, error) {
		stop()
		return 0, errors.Join(err, group.Wait())
	}
	for i := range positions {
		conn, closeConn, err := f.connectLoop(ctx, e)
		if err != nil {
			return failed(err)
		}
		defer closeConn()
		if _, err := conn.Exec(ctx, "listen "+handChannel); err != nil {
			return failed(err)
		}
		group.Go(func() error {
			for {
				if _, err := conn.WaitForNotification(stopping); err != nil {
					return unlessDone(stopping, err)
				}
				n, err := loopOnce(working, conn, name, i, &positions[i])
				if err != nil {
					return err
				}
				p.add(n)
			}
		})
	}
	writer, closeWriter, err := f.handWriter(ctx, f.tenant, nil, []string{notifyByHand})
	if err != nil {
		stop()
		return 0, errors.Join(err, group.Wait())
	}
	defer closeWriter()
	begin := time.Now()
	err = f.append(working, writer, p, 0, func() {})
	took := time.Since(begin)
	stop()
	return took, errors.Join(err, group.Wait())
}

// loopOnce reads the new events, and applies them in one round trip.
func loopOnce(ctx context.Context, conn *pgx.Conn, name string, projection int, position *int64) (int, error) {
	rows, err := conn.Query(ctx, "read", *position)
	if err != nil {
		return 0, err
	}
	events, err := scanEvents(rows, 1)
	if err != nil || len(events) == 0 {
		return 0, err
	}
	last := events[len(events)-1].Position
	var batch pgx.Batch
	queueTotal(&batch, name, 0, projection, len(events), last)
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return 0, err
	}
	*position = last
	return len(events), nil
}

// queueTotal queues a transaction that adds events to a total and advances the checkpoint.
func queueTotal(batch *pgx.Batch, name string, tenant, projection, events int, position int64) {
	batch.Queue("begin")
	batch.Queue(addTotalSQL, name, tenant, projection, events)
	batch.Queue("update bench.marks set position = $4 where contender = $1 and tenant = $2 and projection = $3", name,
		tenant, projection, position)
	batch.Queue("commit")
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/pgstore"
)

const (
	// wideWriters append at once.
	wideWriters = 8
	// wideWorkers apply at once in the handwritten code, on a connection each.
	wideWorkers = 8
	// wideShared is how many tenants that wait share the messages of a handwritten worker.
	wideShared  = 4
	addTotalSQL = `insert into bench.totals (contender, tenant, projection, n) values ($1, $2, $3, $4)
		on conflict (contender, tenant, projection) do update set n = totals.n + excluded.n`
)

var wideScenario = scenario{
	name: "wide",
	about: `Many tenants with 10 projections each. 8 writers append single events to tenants in random order. An application is one
		event applied by one projection, in a transaction of its own with its checkpoint: one statement of the handler, and one for
		the checkpoint. Measured are the applications per second from the first append to the last application. The handwritten code
		reads the events of a tenant once for its 10 projections, of up to 4 tenants in one round trip, keeps checkpoints in memory, and sends
		the 10 transactions of each in another round trip, by 8 workers that writers wake within the process. The classic sequence runs
		for each projection of the tenants that writers wake. In the second table, no application waits for the disk: millrace by
		AsyncCommit, the others by synchronous_commit. With "queued", a batch is one message. In the third one, one event at a time goes to a random tenant, and is measured until all 10 projections have
		applied it.`,
	cases: func(o sizeOptions) []benchCase {
		size := fmt.Sprintf("%s tenants × %d projections", thousands(int64(o.wideTenants)), o.wideProjections)
		return []benchCase{
			wideCase(o, size, false),
			wideCase(o, size+", no wait for the disk", true),
			{
				name: size + ", latency", metrics: latencyMetrics,
				goals: []goal{{contender: "random tenant", metric: "p50", to: "always the same tenant", atMost: 3}},
				prepare: func(ctx context.Context, e *env) ([]contender, error) {
					w, err := newWide(ctx, e, o)
					if err != nil {
						return nil, err
					}
					p := newProgress()
					return []contender{
						{"always the same tenant", func(ctx context.Context, _ int) (figures, verify, error) {
							return w.latency(ctx, p, func() int { return 0 })
						}},
						{"random tenant", func(ctx context.Context, _ int) (figures, verify, error) {
							return w.latency(ctx, p, func() int { return rand.IntN(o.wideTenants) })
						}},
					}, nil
				},
			},
		}
	},
}

// wideCase measures the applications per second. With async, none of them waits for the disk.
func wideCase(o sizeOptions, name string, async bool) benchCase {
	return benchCase{
		name: name,
		metrics: []metric{
			{"applications/s", "", higher, true}, {"own CPU/application", "µs", lower, false},
			{"server CPU/application", "µs", lower, false},
			{"allocations/application", "", lower, false},
		},
		goals: []goal{
			{contender: "millrace, queued", metric: "applications/s", to: "handwritten", atLeast: 0.7},
			{contender: "millrace, queued", metric: "own CPU/application", atMost: 80},
			{contender: "millrace", metric: "applications/s", to: "classic sequence", atLeast: 1},
		},
		prepare: func(ctx context.Context, e *env) ([]contender, error) {
			w, err := newWide(ctx, e, o)
			if err != nil {
				return nil, err
			}
			w.async = async
			contenders := []contender{
				{"handwritten", w.byHand}, w.millrace("millrace", w.batch), w.millrace("millrace, queued", w.queued),
				{"classic sequence", w.classic},
			}
			if !async {
				contenders = append(contenders, contender{"handwritten, one flush", w.byHandOneFlush})
			}
			return contenders, nil
		},
	}
}

// wide runs the contenders of wide. Events are appended to all tenants equally often.
type wide struct {
	*env
	store   *pgstore.Store
	tenants []*pgstore.Tenant
	// silent are the tenants by a store that notifies nothing.
	silent []*pgstore.Tenant
	events []int64            // of each tenant, in all rounds
	seen   map[string][]tally // of each projection of each tenant, by contender
	o      sizeOptions
	// async says that no application waits for the disk.
	async bool
}

func newWide(ctx context.Context, e *env, o sizeOptions) (*wide, error) {
	store, err := e.store(ctx, wideWorkers+wideWriters+2, pgstore.Options{}, nil)
	if err != nil {
		return nil, err
	}
	tenants, err := e.tenants(ctx, store, o.wideTenants)
	if err != nil {
		return nil, err
	}
	quiet, err := e.store(ctx, wideWriters, pgstore.Options{NoNotify: true}, nil)
	if err != nil {
		return nil, err
	}
	w := &wide{
		env: e, store: store, tenants: tenants, events: make([]int64, len(tenants)), seen: make(map[string][]tally),
		o: o,
	}
	for _, contender := range []string{"millrace", "millrace, queued", "latency"} {
		w.seen[contender] = make([]tally, len(tenants)*o.wideProjections)
	}
	for _, tenant := range tenants {
		silent, err := quiet.ForTenant(tenant.Name())
		if err != nil {
			return nil, err
		}
		w.silent = append(w.silent, silent)
	}
	return w, nil
}

// ours returns the verification of millrace's contenders: counts in the database, and the order that the handlers saw.
func (w *wide) ours(contender string) verify {
	return all(w.verify(contender, w.events), sumInOrder(w.seen[contender], w.applications()))
}

// verify returns a verification that each projection of each tenant has applied all events of the tenant.
func (w *wide) verify(contender string, events []int64) verify {
	return w.isCount(0, "with a wrong number of events are",
		`select count(*) from unnest($2::bigint[]) with ordinality as e (n, tenant)
		cross join generate_series(0, $3::int - 1) as p
		left join bench.totals t on t.contender = $1 and t.tenant = e.tenant - 1 and t.projection = p
		where coalesce(t.n, 0) <> e.n`, contender, events, w.o.wideProjections)
}

// append lets the writers append, and calls appended after each append. Each writer has tenants of its own, in random
// order.
func (w *wide) append(ctx context.Context, tenants []*pgstore.Tenant, appended func(tenant int)) error {
	orders := make([][]int, wideWriters)
	for i := range w.o.wideEvents {
		tenant := i % len(tenants)
		w.events[tenant]++
		writer := tenant % wideWriters
		orders[writer] = append(orders[writer], tenant)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, order := range orders {
		rand.Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })
		group.Go(func() error {
			for _, tenant := range order {
				if _, err := tenants[tenant].Append(ctx, "wide", event.Any, probe); err != nil {
					return err
				}
				appended(tenant)
			}
			return nil
		})
	}
	return group.Wait()
}

// wideHandler makes the handler of a projection of a contender.
type wideHandler = func(contender string, projection int) millrace.Handler

// batch returns a handler with a transaction.
func (w *wide) batch(contender string, projection int) millrace.Handler {
	return pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		tenant, err := w.see(ctx, contender, projection, events)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, addTotalSQL, contender, tenant, projection, len(events))
		return err
	})
}

// queued returns a handler that queues.
func (w *wide) queued(contender string, projection int) millrace.Handler {
	return pgstore.Queued(func(ctx context.Context, q pgstore.Queue, events []event.Envelope) error {
		tenant, err := w.see(ctx, contender, projection, events)
		q.Exec(addTotalSQL, contender, tenant, projection, len(events))
		return err
	})
}

// see notes events that a projection of a contender handles, and returns the tenant.
func (w *wide) see(ctx context.Context, contender string, projection int,
	events []event.Envelope) (tenant int, err error) {
	tenant, err = tenantNumber(ctx)
	if err != nil {
		return 0, err
	}
	w.seen[contender][tenant*w.o.wideProjections+projection].see(events)
	return tenant, nil
}

// runtime returns a runtime with the projections of a contender, which reports each batch.
func (w *wide) runtime(contender string, handler wideHandler, ended func(b observe.Batch)) (*millrace.Runtime, error) {
	rt, err := millrace.New(millrace.Config{Store: w.store, Observer: observe.Observer{BatchEnded: ended}})
	if err != nil {
		return nil, err
	}
	for i := range w.o.wideProjections {
		err := rt.Register(millrace.Projection{
			Name: fmt.Sprint(contender, i), AsyncCommit: w.async, Handler: handler(contender, i),
		})
		if err != nil {
			return nil, err
		}
	}
	return rt, nil
}

// live runs a runtime with the projections of a contender, and calls fn when all have applied all events. p counts the
// applications of the contender in all rounds.
func (w *wide) live(ctx context.Context, contender string, handler wideHandler, p *progress,
	fn func(ctx context.Context) error) error {
	rt, err := w.runtime(contender, handler, func(b observe.Batch) {
		if b.Err == nil {
			p.add(b.Applied)
		}
	})
	if err != nil {
		return err
	}
	return while(ctx, rt.Run, func() error {
		n := (len(w.tenants) + 1) * w.o.wideProjections // the default tenant exists too
		err := until(ctx, "all projections are live", func() bool { _, live := owned(rt); return live == n })
		if err != nil {
			return err
		}
		if err := p.wait(ctx, w.applications()); err != nil {
			return err
		}
		return fn(ctx)
	})
}

// applications returns the number of applications of a contender that has applied the events of all rounds.
func (w *wide) applications() int {
	total := 0
	for _, n := range w.events {
		total += int(n) * w.o.wideProjections
	}
	return total
}

func (w *wide) millrace(name string, handler wideHandler) contender {
	p := newProgress()
	return contender{name, func(ctx context.Context, _ int) (f figures, _ verify, err error) {
		err = w.live(ctx, name, handler, p, func(ctx context.Context) error {
			begin := w.startMeter()
			if err := w.append(ctx, w.tenants, func(int) {}); err != nil {
				return err
			}
			err := p.wait(ctx, w.applications())
			f = begin.perEvent(w.o.wideEvents * w.o.wideProjections)
			return err
		})
		return f, w.ours(name), err
	}}
}

// byHand applies events by workers that writers wake.
func (w *wide) byHand(ctx context.Context, round int) (figures, verify, error) {
	return w.handwritten(ctx, fmt.Sprint("handwritten ", round), false)
}

// byHandOneFlush is byHand, but of the transactions of a message only the last waits for the disk, and none counts
// before that.
func (w *wide) byHandOneFlush(ctx context.Context, round int) (figures, verify, error) {
	return w.handwritten(ctx, fmt.Sprint("handwritten, one flush ", round), true)
}

func (w *wide) handwritten(ctx context.Context, name string, oneFlush bool) (figures, verify, error) {
	positions, err := w.positions(ctx)
	if err != nil {
		return nil, nil, err
	}
	before := append([]int64(nil), w.events...)
	f, err := w.byWorkers(ctx, name, positions, wideShared, oneFlush,
		func(ctx context.Context, conn *pgx.Conn, tenants []int) (int, error) {
			return w.applyByHand(ctx, conn, name, tenants, positions, oneFlush)
		})
	return f, w.verify(name, added(w.events, before)), err
}

// added returns what was added to each value.
func added(after, before []int64) []int64 {
	list := make([]int64, len(after))
	for i := range after {
		list[i] = after[i] - before[i]
	}
	return list
}

// positions returns the last position of each tenant.
func (w *wide) positions(ctx context.Context) ([]int64, error) {
	positions := make([]int64, len(w.tenants))
	for i, tenant := range w.tenants {
		err := w.Pool.QueryRow(ctx, "select coalesce(max(global_seq), 0) from "+
			eventsOf(tenant), pgx.QueryExecModeExec).Scan(&positions[i])
		if err != nil {
			return nil, err
		}
	}
	return positions, nil
}

// applying applies the events of tenants, and returns how many times one was applied.
type applying = func(ctx context.Context, conn *pgx.Conn, tenants []int) (int, error)

// byWorkers appends while workers apply the events of up to shared tenants at a time, and measures. All checkpoints of
// a tenant begin at its position.
func (w *wide) byWorkers(ctx context.Context, name string, positions []int64, shared int, oneFlush bool,
	apply applying) (figures, error) {
	_, err := w.Pool.Exec(ctx, `insert into bench.marks select $1, t - 1, p, position
		from unnest($2::bigint[]) with ordinality as e (position, t), generate_series(0, $3::int - 1) as p`, name, positions, w.o.wideProjections)
	if err != nil {
		return nil, err
	}
	n := w.o.wideEvents * w.o.wideProjections
	p, q := newProgress(), newQueue(len(w.tenants))
	group, working := errgroup.WithContext(ctx)
	for range wideWorkers {
		conn, closeConn, err := w.connect(ctx)
		if err != nil {
			return nil, errors.Join(err, q.close(group))
		}
		defer closeConn()
		if w.async || oneFlush {
			if _, err := conn.Exec(ctx, "set synchronous_commit = off"); err != nil {
				return nil, errors.Join(err, q.close(group))
			}
		}
		group.Go(func() error {
			return q.work(working, shared, func(tenants []int) error {
				applied, err := apply(working, conn, tenants)
				p.add(applied)
				return err
			})
		})
	}
	begin := w.startMeter()
	err = w.appendSilently(working, q.wake, p, n)
	measured := begin.perEvent(n)
	return measured, errors.Join(err, q.close(group))
}

// appendSilently appends by a store that notifies nothing, and waits for n applications.
func (w *wide) appendSilently(ctx context.Context, appended func(tenant int), p *progress, n int) error {
	if err := w.append(ctx, w.silent, appended); err != nil {
		return err
	}
	return p.wait(ctx, n)
}

// applyByHand reads the new events of tenants in one round trip, and applies them in another, by each projection in a
// transaction of its own.
func (w *wide) applyByHand(ctx context.Context, conn *pgx.Conn, name string, tenants []int, positions []int64,
	oneFlush bool) (applied int, err error) {
	reads := make([]string, len(tenants))
	args := []any{pgx.QueryExecModeExec}
	for i, tenant := range tenants {
		reads[i] = fmt.Sprintf("(select %d, "+eventColumns+" from "+eventsOf(w.tenants[tenant])+
			" where global_seq > $%d order by global_seq limit %d)",
			i, i+1, handBatch)
		args = append(args, positions[tenant])
	}
	rows, err := conn.Query(ctx, strings.Join(reads, " union all "), args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	events := make([][]event.Envelope, len(tenants))
	var of int
	var columns eventRow
	into := append([]any{&of}, columns.into()...)
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return 0, err
		}
		events[of] = append(events[of], columns.e)
		columns.e = event.Envelope{}
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	var batch pgx.Batch
	for i, tenant := range tenants {
		n := len(events[i])
		if n == 0 {
			continue
		}
		positions[tenant] = events[i][n-1].Position
		for p := range w.o.wideProjections {
			queueTotal(&batch, name, tenant, p, n, positions[tenant])
		}
		applied += n * w.o.wideProjections
	}
	if applied == 0 { // an earlier read took the events for which the tenants were woken
		return 0, nil
	}
	if oneFlush {
		last := len(batch.QueuedQueries) - 4
		batch.QueuedQueries = slices.Insert(batch.QueuedQueries, last+1,
			&pgx.QueuedQuery{SQL: "set local synchronous_commit = on"})
	}
	return applied, conn.SendBatch(ctx, &batch).Close()
}

// classic runs the classic sequence for the projections of the tenants that writers wake.
func (w *wide) classic(ctx context.Context, round int) (figures, verify, error) {
	name := fmt.Sprint("classic ", round)
	positions, err := w.positions(ctx)
	if err != nil {
		return nil, nil, err
	}
	before := append([]int64(nil), w.events...)
	f, err := w.byWorkers(ctx, name, positions, 1, false,
		func(ctx context.Context, conn *pgx.Conn, tenants []int) (total int, err error) {
			tenant := tenants[0]
			for p := 0; p < w.o.wideProjections && err == nil; p++ {
				one := classicMark(name, tenant, p, eventsOf(w.tenants[tenant]),
					func(ctx context.Context, tx pgx.Tx, _ event.Envelope) error {
						_, err := tx.Exec(ctx, addTotalSQL, name, tenant, p, 1)
						return err
					})
				var n int
				n, err = one.tick(ctx, conn)
				total += n
			}
			return total, err
		})
	return f, w.verify(name, added(w.events, before)), err
}

// latency measures single events to the tenants that choose returns.
func (w *wide) latency(ctx context.Context, p *progress, choose func() int) (figures, verify, error) {
	var took []time.Duration
	err := w.live(ctx, "latency", w.batch, p, func(ctx context.Context) error {
		for range w.o.wideProbes {
			if err := pause(ctx, probePause); err != nil {
				return err
			}
			tenant := choose()
			if _, err := w.tenants[tenant].Append(ctx, "latency", event.Any, probe); err != nil {
				return err
			}
			w.events[tenant]++
			begin := time.Now()
			if err := p.wait(ctx, w.applications()); err != nil {
				return err
			}
			took = append(took, time.Since(begin))
		}
		return nil
	})
	return figures{percentile(took, 0.5), percentile(took, 0.99)}, w.ours("latency"), err
}

// probePause is the time between two probes, in which everything becomes idle.
const probePause = 3 * time.Millisecond

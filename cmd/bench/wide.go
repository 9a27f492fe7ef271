package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	addTotalSQL = `insert into bench.totals (contender, tenant, projection, n) values ($1, $2, $3, $4)
		on conflict (contender, tenant, projection) do update set n = totals.n + excluded.n`
)

var wideScenario = scenario{
	name: "wide",
	about: `Many tenants with 10 projections each. 8 writers append single events to tenants in random order. An application is one
		event applied by one projection, in a transaction of its own with its checkpoint: one statement of the handler, and one for
		the checkpoint. Measured are the applications per second from the first append to the last application. The handwritten code
		reads the events of a tenant once for its 10 projections, keeps checkpoints in memory, and sends the 10 transactions in one round trip,
		by 8 workers that writers wake within the process. The classic sequence runs for each projection of the tenants that
		writers wake. In the second table, one event at a time goes to a random tenant, and is measured until all 10 projections have
		applied it.`,
	cases: func(o sizeOptions) []benchCase {
		size := fmt.Sprintf("%s tenants × %d projections", thousands(int64(o.wideTenants)), o.wideProjections)
		return []benchCase{
			{
				name: size, metrics: []metric{{"applications/s", "", higher, true}},
				goals: []goal{{contender: "millrace", metric: "applications/s", to: "handwritten", atLeast: 0.8}},
				prepare: func(ctx context.Context, e *env) ([]contender, error) {
					w, err := newWide(ctx, e, o)
					if err != nil {
						return nil, err
					}
					p := newProgress()
					return []contender{
						{"handwritten", w.byHand},
						{"millrace", func(ctx context.Context, _ int) (figures, verify, error) { return w.millrace(ctx, p) }},
						{"classic sequence", w.classic},
					}, nil
				},
			},
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

// wide runs the contenders of wide. Events are appended to all tenants equally often.
type wide struct {
	*env
	store   *pgstore.Store
	tenants []*pgstore.Tenant
	// silent are the tenants by a store that notifies nothing.
	silent []*pgstore.Tenant
	events []int64 // of each tenant, in all rounds
	seen   []tally // of each projection of each tenant, by millrace
	o      sizeOptions
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
	w := &wide{env: e, store: store, tenants: tenants, events: make([]int64, len(tenants)), seen: make([]tally, len(tenants)*o.wideProjections), o: o}
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
	return all(w.verify(contender, w.events), sumInOrder(w.seen, w.applications()))
}

// verify returns a verification that each projection of each tenant has applied all events of the tenant.
func (w *wide) verify(contender string, events []int64) verify {
	return w.isCount(0, "with a wrong number of events are", `select count(*) from unnest($2::bigint[]) with ordinality as e (n, tenant)
		cross join generate_series(0, $3::int - 1) as p
		left join bench.totals t on t.contender = $1 and t.tenant = e.tenant - 1 and t.projection = p
		where coalesce(t.n, 0) <> e.n`, contender, events, w.o.wideProjections)
}

// append lets the writers append, and calls appended after each append. Each writer has tenants of its own, in random order.
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

// runtime returns a runtime with the projections of a contender, which reports each batch.
func (w *wide) runtime(contender string, ended func(b observe.Batch)) (*millrace.Runtime, error) {
	rt, err := millrace.New(millrace.Config{Store: w.store, Observer: observe.Observer{BatchEnded: ended}})
	if err != nil {
		return nil, err
	}
	for i := range w.o.wideProjections {
		err := rt.Register(millrace.Projection{Name: fmt.Sprint(contender, i), Handler: pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
			tenant, err := tenantNumber(ctx)
			if err != nil {
				return err
			}
			w.seen[tenant*w.o.wideProjections+i].see(events)
			_, err = tx.Exec(ctx, addTotalSQL, contender, tenant, i, len(events))
			return err
		})})
		if err != nil {
			return nil, err
		}
	}
	return rt, nil
}

// live runs a runtime with the projections of a contender, and calls fn when all have applied all events. p counts the
// applications of the contender in all rounds.
func (w *wide) live(ctx context.Context, contender string, p *progress, fn func(ctx context.Context) error) error {
	rt, err := w.runtime(contender, func(b observe.Batch) {
		if b.Err == nil {
			p.add(b.Applied)
		}
	})
	if err != nil {
		return err
	}
	stop := running(ctx, rt.Run)
	n := (len(w.tenants) + 1) * w.o.wideProjections // the default tenant exists too
	err = until(ctx, "all projections are live", func() bool { _, live := owned(rt); return live == n })
	if err == nil {
		err = p.wait(ctx, w.applications())
	}
	if err == nil {
		err = fn(ctx)
	}
	return errors.Join(err, stop())
}

// applications returns the number of applications of a contender that has applied the events of all rounds.
func (w *wide) applications() int {
	total := 0
	for _, n := range w.events {
		total += int(n) * w.o.wideProjections
	}
	return total
}

func (w *wide) millrace(ctx context.Context, p *progress) (f figures, _ verify, err error) {
	err = w.live(ctx, "millrace", p, func(ctx context.Context) error {
		begin := time.Now()
		if err := w.append(ctx, w.tenants, func(int) {}); err != nil {
			return err
		}
		err := p.wait(ctx, w.applications())
		f = figures{perSecond(w.o.wideEvents*w.o.wideProjections, begin)}
		return err
	})
	return f, w.ours("millrace"), err
}

// byHand applies events by workers that writers wake.
func (w *wide) byHand(ctx context.Context, round int) (figures, verify, error) {
	name := fmt.Sprint("handwritten ", round)
	positions, err := w.positions(ctx)
	if err != nil {
		return nil, nil, err
	}
	before := append([]int64(nil), w.events...)
	f, err := w.byWorkers(ctx, name, positions, func(ctx context.Context, conn *pgx.Conn, tenant int) (int, error) {
		return w.applyByHand(ctx, conn, name, tenant, &positions[tenant])
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
		err := w.Pool.QueryRow(ctx, "select coalesce(max(global_seq), 0) from "+eventsOf(tenant), pgx.QueryExecModeExec).Scan(&positions[i])
		if err != nil {
			return nil, err
		}
	}
	return positions, nil
}

// byWorkers appends while workers apply, and measures. All checkpoints of a tenant begin at its position.
func (w *wide) byWorkers(ctx context.Context, name string, positions []int64, apply func(ctx context.Context, conn *pgx.Conn, tenant int) (int, error)) (figures, error) {
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
		group.Go(func() error {
			return q.work(working, func(tenant int) error {
				applied, err := apply(working, conn, tenant)
				p.add(applied)
				return err
			})
		})
	}
	begin := time.Now()
	err = w.append(working, w.silent, q.wake)
	if err == nil {
		err = p.wait(working, n)
	}
	rate := perSecond(n, begin)
	return figures{rate}, errors.Join(err, q.close(group))
}

// applyByHand reads the new events of a tenant, and applies them by each projection in a transaction of its own, all in one round trip.
func (w *wide) applyByHand(ctx context.Context, conn *pgx.Conn, name string, tenant int, position *int64) (int, error) {
	rows, err := conn.Query(ctx, "select "+eventColumns+" from "+eventsOf(w.tenants[tenant])+" where global_seq > $1 order by global_seq limit $2",
		pgx.QueryExecModeExec, *position, int64(handBatch))
	if err != nil {
		return 0, err
	}
	events, err := scanEvents(rows)
	if err != nil || len(events) == 0 {
		return 0, err
	}
	last := events[len(events)-1].Position
	var batch pgx.Batch
	for p := range w.o.wideProjections {
		queueTotal(&batch, name, tenant, p, len(events), last)
	}
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return 0, err
	}
	*position = last
	return len(events) * w.o.wideProjections, nil
}

// classic runs the classic sequence for the projections of the tenants that writers wake.
func (w *wide) classic(ctx context.Context, round int) (figures, verify, error) {
	name := fmt.Sprint("classic ", round)
	positions, err := w.positions(ctx)
	if err != nil {
		return nil, nil, err
	}
	before := append([]int64(nil), w.events...)
	f, err := w.byWorkers(ctx, name, positions, func(ctx context.Context, conn *pgx.Conn, tenant int) (total int, err error) {
		for p := 0; p < w.o.wideProjections && err == nil; p++ {
			one := classicMark(name, tenant, p, eventsOf(w.tenants[tenant]), func(ctx context.Context, tx pgx.Tx, _ event.Envelope) error {
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
	err := w.live(ctx, "latency", p, func(ctx context.Context) error {
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

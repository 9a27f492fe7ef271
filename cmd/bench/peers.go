package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/pgstore"
)

const (
	// peerConnections is the pool of each contender.
	peerConnections = 20
	// appliedSQL is the statement of all handlers. The primary key refuses a repeated event.
	appliedSQL = "insert into bench.applied (contender, n) values ($1, $2)"
)

var peersScenario = scenario{
	name: "peers",
	about: `Other libraries that apply events from PostgreSQL in a transaction with their own progress. Each inserts a row for each event into
		the same table, whose key refuses repeats. River works a job for each event, and completes it in the handler's
		transaction, with 20 workers; its jobs have no order. Watermill-SQL hands over messages one by one, in transactions of up to
		500. catch-up is from the start to the last commit; River works a tenth of the events. live is from the return of the insertion to
		the commit, for Watermill to the acknowledgement before its commit. "tuned" contenders have the shortest fetch cooldown (River, 1 ms)
		and a poll interval of 10 ms (Watermill). In catch-up only the tuned River runs: by default it fetches at most 20 jobs in 100 ms.`,
	cases: func(o sizeOptions) []benchCase {
		bestOf := func(metric string, peers []string, atLeast, atMost float64, ours ...string) (goals []goal) {
			for _, contender := range ours {
				for _, peer := range peers {
					goals = append(goals, goal{contender: contender,
						metric: metric, to: peer, atLeast: atLeast, atMost: atMost})
				}
			}
			return goals
		}
		return []benchCase{
			{
				name:    "catch-up, " + thousands(int64(o.peerEvents)) + " events",
				metrics: []metric{{"events/s", "", higher, true}},
				goals: bestOf("events/s", []string{"River, tuned", "Watermill-SQL"}, 1, 0, "millrace, per event",
					"millrace, set-based"),
				prepare: func(ctx context.Context, e *env) ([]contender, error) { return peerCatchUps(ctx, e, o) },
			},
			{
				name:    fmt.Sprintf("live, %d events/s", o.peerRate),
				metrics: latencyMetrics,
				goals: bestOf("p50", []string{"River", "River, tuned", "Watermill-SQL", "Watermill-SQL, tuned"}, 0, 1,
					"millrace, per event"),
				prepare: func(ctx context.Context, e *env) ([]contender, error) { return peerLives(ctx, e, o) },
			},
		}
	},
}

// peer runs one contender of peers. It is made anew for each round.
type peer interface {
	// insert inserts events with these numbers.
	insert(ctx context.Context, from, n int) error
	// run applies events, and calls applied with the number of each, until ctx ends.
	run(ctx context.Context, applied func(n int)) error
}

// peerFunc makes a peer. name is unique to the round.
type peerFunc func(ctx context.Context, e *env, name string) (peer, error)

// isApplied returns a verification that a contender has applied the events 0 to n - 1 once each.
func (e *env) isApplied(contender string, n int) verify {
	return e.isCount(n, contender+" applied",
		"select count(*) from bench.applied where contender = $1 and n between 0 and $2::int - 1", contender, n)
}

// peerCatchUp inserts all events, and measures until the last is applied.
func peerCatchUp(e *env, events int, name string, newPeer peerFunc) contender {
	return contender{name, func(ctx context.Context, round int) (figures, verify, error) {
		id := fmt.Sprint(name, " ", round)
		p, closePeer, err := roundPeer(ctx, e, id, newPeer)
		if err != nil {
			return nil, nil, err
		}
		defer closePeer()
		for from := 0; from < events; from += 1000 {
			if err := p.insert(ctx, from, min(1000, events-from)); err != nil {
				return nil, nil, err
			}
		}
		if _, err := e.Pool.Exec(ctx, "analyze"); err != nil {
			return nil, nil, err
		}
		done := newProgress()
		begin := time.Now()
		stop := running(ctx, func(ctx context.Context) error { return p.run(ctx, func(int) { done.add(1) }) })
		err = done.wait(ctx, events)
		rate := perSecond(events, begin)
		return figures{rate}, e.isApplied(id, events), errors.Join(err, stop())
	}}
}

// roundPeer makes a peer with an env of its own for the connections of the round.
func roundPeer(ctx context.Context, e *env, id string, newPeer peerFunc) (peer, func(), error) {
	own := &env{Pool: e.Pool, dsn: e.dsn}
	closePeer := func() { _ = own.close(ctx) }
	p, err := newPeer(ctx, own, id)
	if err != nil {
		closePeer()
		return nil, nil, err
	}
	return p, closePeer, nil
}

// peerLive inserts single events at a rate, and measures until each is applied.
func peerLive(e *env, o sizeOptions, name string, newPeer peerFunc) contender {
	return contender{name, func(ctx context.Context, round int) (figures, verify, error) {
		id := fmt.Sprint(name, " ", round)
		p, closePeer, err := roundPeer(ctx, e, id, newPeer)
		if err != nil {
			return nil, nil, err
		}
		defer closePeer()
		d := newDelays()
		d.unordered = true
		run := func(ctx context.Context) error { return p.run(ctx, func(n int) { d.advance(int64(n)) }) }
		inserted := 0
		insertOne := func(ctx context.Context, _ string) (int64, error) {
			n := inserted
			inserted++
			return int64(n), p.insert(ctx, n, 1)
		}
		err = while(ctx, run, func() error {
			// The first event waits until the peer is running.
			if _, err := insertOne(ctx, ""); err != nil {
				return err
			}
			d.appended(0)
			if err := d.wait(ctx); err != nil {
				return err
			}
			d.forget()
			if err := d.appendAtRate(ctx, o.peerRate, o.peerTime, "", []appendFunc{insertOne}); err != nil {
				return err
			}
			return d.wait(ctx)
		})
		if err != nil {
			return nil, nil, err
		}
		all := d.list()
		return figures{percentile(all, 0.5), percentile(all, 0.99)}, e.isApplied(id, inserted), nil
	}}
}

func peerCatchUps(ctx context.Context, e *env, o sizeOptions) ([]contender, error) {
	if err := prepareRiver(ctx, e); err != nil {
		return nil, err
	}
	return []contender{
		peerCatchUp(e, max(1, o.peerEvents/o.slowShare), "River, tuned", newRiver(time.Millisecond)),
		peerCatchUp(e, o.peerEvents, "Watermill-SQL", newWatermill(0)),
		peerCatchUp(e, o.peerEvents, "millrace, per event", newOurs(eachApplied)),
		peerCatchUp(e, o.peerEvents, "millrace, pipelined", newOurs(pipelinedApplied)),
		peerCatchUp(e, o.peerEvents, "millrace, set-based", newOurs(setBasedApplied)),
	}, nil
}

func peerLives(ctx context.Context, e *env, o sizeOptions) ([]contender, error) {
	if err := prepareRiver(ctx, e); err != nil {
		return nil, err
	}
	return []contender{
		peerLive(e, o, "River", newRiver(0)),
		peerLive(e, o, "River, tuned", newRiver(time.Millisecond)),
		peerLive(e, o, "Watermill-SQL", newWatermill(0)),
		peerLive(e, o, "Watermill-SQL, tuned", newWatermill(10*time.Millisecond)),
		peerLive(e, o, "millrace, per event", newOurs(eachApplied)),
	}, nil
}

// ours is millrace as a peer.
type ours struct {
	store   *pgstore.Store
	tenant  *pgstore.Tenant
	name    string
	handler func(name string) pgstore.Handler
}

func newOurs(handler func(name string) pgstore.Handler) peerFunc {
	return func(ctx context.Context, e *env, name string) (peer, error) {
		store, err := e.store(ctx, peerConnections, pgstore.Options{}, nil)
		if err != nil {
			return nil, err
		}
		// A tenant of its own has only the events of the round.
		tenant, err := store.CreateTenant(ctx, name)
		return &ours{store, tenant, name, handler}, err
	}
}

// numbered returns an event with a number.
func numbered(n int) event.Event {
	return event.Event{Type: "numbered", Body: fmt.Appendf(nil, `{"n": %d}`, n)}
}

// number returns the number of an event.
func number(e event.Envelope) (int, error) {
	var body struct{ N int }
	err := e.Decode(&body)
	return body.N, err
}

func (o *ours) insert(ctx context.Context, from, n int) error {
	list := make([]event.Event, n)
	for i := range list {
		list[i] = numbered(from + i)
	}
	_, err := o.tenant.Append(ctx, fmt.Sprint("stream ", from), event.Any, list...)
	return err
}

// run reports the events of each batch after its commit.
func (o *ours) run(ctx context.Context, applied func(n int)) error {
	next := 0
	rt, err := millrace.New(millrace.Config{Store: o.store, Tenants: []string{o.name},
		Observer: observe.Observer{BatchEnded: func(b observe.Batch) {
			if b.Err != nil {
				return
			}
			for range b.Applied {
				applied(next)
				next++
			}
		}}})
	if err != nil {
		return err
	}
	if err := rt.Register(millrace.Projection{Name: "peer", Handler: o.handler(o.name)}); err != nil {
		return err
	}
	return rt.Run(ctx)
}

func eachApplied(name string) pgstore.Handler {
	return pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
		n, err := number(e)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, appliedSQL, name, n)
		return err
	})
}

func pipelinedApplied(name string) pgstore.Handler {
	return pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		var batch pgx.Batch
		for _, e := range events {
			n, err := number(e)
			if err != nil {
				return err
			}
			batch.Queue(appliedSQL, name, n)
		}
		return tx.SendBatch(ctx, &batch).Close()
	})
}

func setBasedApplied(name string) pgstore.Handler {
	return pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		numbers := make([]int, len(events))
		for i, e := range events {
			n, err := number(e)
			if err != nil {
				return err
			}
			numbers[i] = n
		}
		_, err := tx.Exec(ctx, "insert into bench.applied (contender, n) select $1, unnest($2::int[])", name, numbers)
		return err
	})
}

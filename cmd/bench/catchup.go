package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/pgstore"
)

var catchUpScenario = scenario{
	name: "catchup",
	about: `A projection that counts events by type applies all events, from connecting to the last commit: the start, the lease and the
		stop of the runtime are included. The handwritten loop reads ahead on one connection, and applies a batch of 2,000 events in one
		round trip on another; it handles no gaps, leases or failures. Handlers of millrace use one statement for a batch (set-based),
		one for each event in one round trip (pipelined), or one round trip for each event (per event). With "queued", a batch is one message. The classic sequence is: lock
		the checkpoint, read, apply event by event, advance the checkpoint, commit, with a round trip for each statement. The last two
		apply fewer events. "with an upcaster" is set-based on a store that has a registry of event types, with an upcaster of a type that no event has.`,
	cases: func(o sizeOptions) []benchCase {
		return []benchCase{{
			name: thousands(int64(o.catchUpEvents)) + " events",
			metrics: []metric{
				{"events/s", "", higher, true}, {"own CPU/event", "µs", lower, false},
				{"server CPU/event", "µs", lower, false}, {"allocations/event", "", lower, false},
			},
			goals: []goal{
				{contender: "millrace, set-based", metric: "events/s", to: "handwritten", atLeast: 0.95},
				{contender: "millrace, set-based, queued", metric: "events/s", to: "handwritten", atLeast: 1.1},
				{
					contender: "millrace, set-based, with an upcaster", metric: "events/s", to: "millrace, set-based",
					atLeast: 0.98,
				},
				{contender: "millrace, pipelined", metric: "events/s", to: "millrace, per event", atLeast: 5},
			},
			prepare: func(ctx context.Context, e *env) ([]contender, error) { return catchUpContenders(ctx, e, o) },
		}}
	},
}

// catcher runs the contenders of catchup. many is a tenant with all events, few one with fewer.
type catcher struct {
	*env
	store     *pgstore.Store
	many, few *pgstore.Tenant
	o         sizeOptions
}

// withUpcaster opens the store once more, with a registry of the types of fillStore and an upcaster of another type.
func (c catcher) withUpcaster(ctx context.Context) (catcher, error) {
	names := make([]string, filledTypes)
	for i := range names {
		names[i] = filledType(i)
	}
	unchanged := func(body json.RawMessage) (json.RawMessage, error) { return body, nil }
	types, err := eventtype.New(eventtype.Named(names...), eventtype.Named("current"),
		eventtype.UpcastJSON("old", "current", unchanged))
	if err != nil {
		return c, err
	}
	c.store, err = c.env.store(ctx, 12, pgstore.Options{Types: types}, nil)
	return c, err
}

func catchUpContenders(ctx context.Context, e *env, o sizeOptions) ([]contender, error) {
	store, err := e.store(ctx, 12, pgstore.Options{}, nil)
	if err != nil {
		return nil, err
	}
	tenants, err := e.tenants(ctx, store, 2)
	if err != nil {
		return nil, err
	}
	c := catcher{e, store, tenants[0], tenants[1], o}
	upcasting, err := c.withUpcaster(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.fill(ctx, c.many, o.catchUpEvents); err != nil {
		return nil, err
	}
	if err := e.fill(ctx, c.few, c.fewEvents()); err != nil {
		return nil, err
	}
	return []contender{
		{"handwritten", c.byHand},
		c.millrace("millrace, set-based", "t0", o.catchUpEvents, batchSetBased),
		upcasting.millrace("millrace, set-based, with an upcaster", "t0", o.catchUpEvents, batchSetBased),
		c.millrace("millrace, set-based, queued", "t0", o.catchUpEvents, queuedSetBased),
		c.millrace("millrace, pipelined", "t0", o.catchUpEvents,
			func(name string, t *tally) millrace.Handler { return pgstore.Batch(pipelined(name, t)) }),
		c.millrace("millrace, per event, queued", "t0", o.catchUpEvents,
			func(name string, t *tally) millrace.Handler { return pgstore.QueuedEach(perEventQueued(name, t)) }),
		c.millrace("millrace, per event", "t1", c.fewEvents(),
			func(name string, t *tally) millrace.Handler { return pgstore.Each(perEvent(name, t)) }),
		{"classic sequence", c.classic},
	}, nil
}

func (c catcher) fewEvents() int { return max(1, c.o.catchUpEvents/c.o.slowShare) }

func (c catcher) byHand(ctx context.Context, round int) (figures, verify, error) {
	name := fmt.Sprint("handwritten ", round)
	begin := c.startMeter()
	loop, closeLoop, err := c.handLoop(ctx, c.many, name, false)
	if err != nil {
		return nil, nil, err
	}
	defer closeLoop()
	err = loop.catchUp(ctx)
	measured := begin.perEvent(c.o.catchUpEvents)
	return measured, all(c.counted(name, c.o.catchUpEvents), loop.tally.inOrder(c.o.catchUpEvents)), err
}

func (c catcher) millrace(name, tenant string, events int, handler handlerFunc) contender {
	return contender{name, func(ctx context.Context, round int) (figures, verify, error) {
		var seen tally
		id := fmt.Sprint(name, " ", round)
		begin := c.startMeter()
		rt, err := millrace.New(millrace.Config{Store: c.store, Tenants: []string{tenant}})
		if err != nil {
			return nil, nil, err
		}
		if err := rt.Register(millrace.Projection{Name: id, Handler: handler(id, &seen)}); err != nil {
			return nil, nil, err
		}
		_, err = rt.RunUntilIdle(ctx)
		measured := begin.perEvent(events)
		return measured, all(c.counted(id, events), seen.inOrder(events)), err
	}}
}

func (c catcher) classic(ctx context.Context, round int) (figures, verify, error) {
	name := fmt.Sprint("classic ", round)
	var seen tally
	begin := c.startMeter()
	conn, closeConn, err := c.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer closeConn()
	if _, err := conn.Exec(ctx, "insert into bench.checkpoint values ($1, 0)", name); err != nil {
		return nil, nil, err
	}
	one := classicCheckpoint(name, c.few, perEvent(name, &seen))
	for n := 1; n > 0; {
		n, err = one.tick(ctx, conn)
		if err != nil {
			return nil, nil, err
		}
	}
	measured := begin.perEvent(c.fewEvents())
	return measured, all(c.counted(name, c.fewEvents()), seen.inOrder(c.fewEvents())), nil
}

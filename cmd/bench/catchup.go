package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// catchUp compares a projection that has to apply all events with a handwritten loop that makes the same reads and writes.
func catchUp(ctx context.Context, e *env, o options, out io.Writer) error {
	if err := e.fill(ctx, o.events); err != nil {
		return fmt.Errorf("append the events: %w", err)
	}
	contenders := []contender[float64]{
		{"catch-up, handwritten loop", func(ctx context.Context, round int) (float64, error) {
			return e.catchUpBaseline(ctx, o.events, fmt.Sprint("handwritten ", round))
		}},
		{"catch-up, millrace", func(ctx context.Context, round int) (float64, error) {
			return e.catchUp(ctx, o.events, fmt.Sprint("millrace ", round))
		}},
	}
	results, err := runRounds(ctx, o.rounds, contenders)
	if err != nil {
		return err
	}
	return showSpeeds(out, "events/s", contenders, results)
}

// fill appends events of several types to many streams.
func (e *env) fill(ctx context.Context, events int) error {
	if err := fillStore(ctx, e.Store.Append, events); err != nil {
		return err
	}
	_, err := e.Pool.Exec(ctx, "vacuum analyze "+e.events())
	return err
}

// fillStore appends events of several types to many streams of a store.
func fillStore(ctx context.Context, appendTo func(context.Context, string, event.Expected, ...event.Event) (event.Appended, error), events int) error {
	const batch, writers = 1000, 4
	group, filling := errgroup.WithContext(ctx)
	for w := range writers {
		group.Go(func() error {
			for i := w * batch; i < events; i += writers * batch {
				list := make([]event.Event, min(batch, events-i))
				for k := range list {
					body, err := json.Marshal(map[string]any{"id": fmt.Sprint("step ", i+k), "role": "EMPLOYEE", "amount": float64(k) / 100})
					if err != nil {
						return err
					}
					list[k] = event.Event{Type: fmt.Sprint("type ", k%14), Body: body}
				}
				if _, err := appendTo(filling, fmt.Sprint("filled", i), event.Any, list...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func (e *env) catchUp(ctx context.Context, events int, name string) (perSecond float64, err error) {
	rt, err := millrace.New(millrace.Config{Store: e.Store})
	if err != nil {
		return 0, err
	}
	if err := rt.Register(millrace.Projection{Name: name, Handler: pgstore.Batch(countAs(name))}); err != nil {
		return 0, err
	}
	begin := time.Now()
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	return float64(events) / took.Seconds(), e.mustHaveCounted(ctx, name, events)
}

func (e *env) catchUpBaseline(ctx context.Context, events int, name string) (perSecond float64, err error) {
	begin := time.Now()
	conn, closeConn, err := e.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer closeConn()
	loop := e.baselineLoop(conn, name)
	if err := loop.start(ctx, false); err != nil {
		return 0, err
	}
	for {
		n, err := loop.step(ctx)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			break
		}
	}
	took := time.Since(begin)
	return float64(events) / took.Seconds(), e.mustHaveCounted(ctx, name, events)
}

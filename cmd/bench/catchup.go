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

// catchUp measures a projection that has everything to do, against a loop written by hand that does the same reads and
// writes, and knows nothing of gaps, leases or failures.
func catchUp(ctx context.Context, l *lab, o options, out io.Writer) error {
	if err := l.fill(ctx, o.events); err != nil {
		return fmt.Errorf("make the events: %w", err)
	}
	sides := []side[float64]{
		{"catch-up, loop by hand", func(ctx context.Context, round int) (float64, error) {
			return l.catchUpByHand(ctx, o.events, fmt.Sprint("by hand ", round))
		}},
		{"catch-up, millrace", func(ctx context.Context, round int) (float64, error) {
			return l.catchUp(ctx, o.events, fmt.Sprint("millrace ", round))
		}},
	}
	results, err := takeTurns(ctx, o.rounds, sides)
	if err != nil {
		return err
	}
	return showSpeeds(out, "events/s", sides, results)
}

// fill appends events of several types to many streams.
func (l *lab) fill(ctx context.Context, events int) error {
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
				if _, err := l.store.Append(filling, fmt.Sprint("filled", i), event.Any, list...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	_, err := l.pool.Exec(ctx, "vacuum analyze "+l.events())
	return err
}

func (l *lab) catchUp(ctx context.Context, events int, name string) (perSecond float64, err error) {
	rt, err := millrace.New(millrace.Config{Store: l.store})
	if err != nil {
		return 0, err
	}
	if err := rt.Register(millrace.Projection{Name: name, Handler: pgstore.Batch(countAs(name))}); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := rt.RunUntilIdle(ctx); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	return float64(events) / took.Seconds(), l.mustHaveCounted(ctx, name, events)
}

func (l *lab) catchUpByHand(ctx context.Context, events int, name string) (perSecond float64, err error) {
	begin := time.Now()
	conn, closeConn, err := l.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer closeConn()
	loop := l.handLoop(conn, name)
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
	return float64(events) / took.Seconds(), l.mustHaveCounted(ctx, name, events)
}

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// pause is the time between two probes, in which everything becomes idle.
const pause = 3 * time.Millisecond

var probe = event.Event{Type: "probed", Body: []byte(`{"amount": 26.85}`)}

// prober runs the rounds of the latency measurement.
type prober struct {
	*env
	probes   int
	appended int // in all rounds so far
}

// latency measures the time from the return of an append until its event is applied and committed.
func latency(ctx context.Context, e *env, o options, out io.Writer) error {
	other, err := pgstore.OpenPool(ctx, e.Pool, pgstore.Options{Schema: storeSchema})
	if err != nil {
		return err
	}
	defer other.Close()
	p := &prober{env: e, probes: o.probes}
	contenders := []contender[[]time.Duration]{
		{"latency, handwritten LISTEN loop", p.baseline},
		{"latency, millrace, woken in process", func(ctx context.Context, _ int) ([]time.Duration, error) { return p.millrace(ctx, e.Store) }},
		{"latency, millrace, woken by NOTIFY", func(ctx context.Context, _ int) ([]time.Duration, error) { return p.millrace(ctx, other) }},
	}
	results, err := runRounds(ctx, o.rounds, contenders)
	if err != nil {
		return err
	}
	return showLatencies(out, 0.5, contenders, results)
}

// take measures probes while work runs, and then stops work.
func (p *prober) take(ctx context.Context, work func(ctx context.Context) error, appendOne func(ctx context.Context, stream string) (int64, error),
	applied func(ctx context.Context, position int64) error) (took []time.Duration, err error) {
	group, ctx := errgroup.WithContext(ctx)
	working, stop := context.WithCancel(ctx)
	group.Go(func() error { return work(working) })
	group.Go(func() error {
		defer stop()
		for i := range 1 + p.probes {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return ctx.Err()
			}
			position, err := appendOne(ctx, fmt.Sprint("probe", i))
			if err != nil {
				return err
			}
			p.appended++
			begin := time.Now()
			if err := applied(ctx, position); err != nil {
				return err
			}
			if i > 0 { // the first one warms up
				took = append(took, time.Since(begin))
			}
		}
		return nil
	})
	err = group.Wait()
	return took, err
}

// millrace appends through from and waits for a runtime on the env's store.
func (p *prober) millrace(ctx context.Context, from *pgstore.Store) ([]time.Duration, error) {
	id := millrace.ProjectionID{Name: "latency"}
	rt, err := millrace.New(millrace.Config{Store: p.Store})
	if err != nil {
		return nil, err
	}
	if err := rt.Register(millrace.Projection{Name: id.Name, Handler: pgstore.Batch(countAs(id.Name))}); err != nil {
		return nil, err
	}
	appendOne := func(ctx context.Context, stream string) (int64, error) {
		result, err := from.Append(ctx, stream, event.Any, probe)
		if err != nil {
			return 0, err
		}
		return result.Positions[0], nil
	}
	took, err := p.take(ctx, rt.Run, appendOne, func(ctx context.Context, position int64) error { return rt.WaitFor(ctx, id, position) })
	if err != nil {
		return nil, err
	}
	return took, p.mustHaveCounted(ctx, id.Name, p.appended)
}

// baseline does the same with the LISTEN loop.
func (p *prober) baseline(ctx context.Context, round int) ([]time.Duration, error) {
	conn, closeConn, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer closeConn()
	if _, err := conn.Exec(ctx, "listen "+baselineChannel); err != nil {
		return nil, err
	}
	loop := p.baselineLoop(conn, fmt.Sprint("handwritten ", round))
	if err := loop.start(ctx, true); err != nil {
		return nil, err
	}
	reached := make(chan int64)
	work := func(ctx context.Context) error { return loop.listen(ctx, reached) }
	appendOne := func(ctx context.Context, stream string) (int64, error) { return appendBaseline(ctx, p.Store, stream) }
	took, err := p.take(ctx, work, appendOne, reaches(reached))
	if err != nil {
		return nil, err
	}
	return took, p.mustHaveCounted(ctx, loop.name, 1+p.probes)
}

// reaches returns a function that waits until a loop that sends its positions has reached one.
func reaches(reached <-chan int64) func(ctx context.Context, position int64) error {
	return func(ctx context.Context, position int64) error {
		for {
			select {
			case at := <-reached:
				if at >= position {
					return nil
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

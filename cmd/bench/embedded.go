package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

// manyWriters is how many writers append to a file at once. A single writer is measured too.
const manyWriters = 32

// fileEnv has a store in a file, and the file of the handwritten code.
type fileEnv struct {
	store *sqlitestore.Store
	hand  *fileHand
	close func() error
}

// newFileEnv creates both files in a temporary folder.
func newFileEnv(ctx context.Context) (e *fileEnv, err error) {
	folder, err := os.MkdirTemp("", "millrace-bench-")
	if err != nil {
		return nil, err
	}
	e = &fileEnv{}
	e.close = func() error {
		var err error
		if e.hand != nil {
			err = e.hand.close()
		}
		if e.store != nil {
			e.store.Close()
		}
		return errors.Join(err, os.RemoveAll(folder))
	}
	if err := e.open(ctx, folder); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func (e *fileEnv) open(ctx context.Context, folder string) (err error) {
	path := filepath.Join(folder, "millrace.db")
	if e.store, err = sqlitestore.Open(ctx, path, sqlitestore.Options{}); err != nil {
		return err
	}
	if err := e.store.Migrate(ctx); err != nil {
		return err
	}
	err = e.store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, createCounts)
		return err
	})
	if err != nil {
		return err
	}
	e.hand, err = openFileHand(ctx, filepath.Join(folder, "handwritten.db"), path)
	return err
}

// embedded compares the store in a file with handwritten code. It needs no server.
func embedded(ctx context.Context, o options, out io.Writer) (err error) {
	e, err := newFileEnv(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	for _, writers := range []int{1, manyWriters} {
		if err := e.appends(ctx, o, writers, out); err != nil {
			return err
		}
	}
	for _, writers := range []int{1, manyWriters} {
		if err := e.live(ctx, o, writers, out); err != nil {
			return err
		}
	}
	if err := e.latency(ctx, o, out); err != nil {
		return err
	}
	return e.catchUp(ctx, o, out)
}

func (e *fileEnv) appends(ctx context.Context, o options, writers int, out io.Writer) error {
	o.writers = writers
	round := func(name string, appendOne appendFunc, count func(ctx context.Context) (int, error)) func(ctx context.Context, round int) (float64, error) {
		return func(ctx context.Context, round int) (float64, error) {
			before, err := count(ctx)
			if err != nil {
				return 0, err
			}
			n, perSecond, err := write(ctx, o, fmt.Sprint(name, writers, "-", round), appendOne)
			if err != nil {
				return 0, err
			}
			after, err := count(ctx)
			if err == nil && after != before+n {
				err = fmt.Errorf("not verified: %d events were appended to the file, want %d", after-before, n)
			}
			return perSecond, err
		}
	}
	contenders := []contender[float64]{
		{fmt.Sprintf("file, append x%d, handwritten", writers), round("hand", e.hand.append, e.hand.count)},
		{fmt.Sprintf("file, append x%d, millrace", writers), round("millrace", func(ctx context.Context, stream string) error {
			_, err := e.store.Append(ctx, stream, event.Any, probe)
			return err
		}, e.count)},
	}
	results, err := runRounds(ctx, o.rounds, contenders)
	if err != nil {
		return err
	}
	return showSpeeds(out, "appends/s", contenders, results)
}

// live compares how fast events that are appended one at a time are applied, from the first append to the last commit.
func (e *fileEnv) live(ctx context.Context, o options, writers int, out io.Writer) error {
	o.writers = writers
	contenders := []contender[float64]{
		{fmt.Sprintf("file, live x%d, handwritten", writers), func(ctx context.Context, round int) (float64, error) {
			return e.liveByHand(ctx, o, fmt.Sprint(writers, "-", round))
		}},
		{fmt.Sprintf("file, live x%d, millrace", writers), func(ctx context.Context, round int) (float64, error) {
			return e.liveRuntime(ctx, o, fmt.Sprint(writers, "-", round))
		}},
	}
	results, err := runRounds(ctx, o.rounds, contenders)
	if err != nil {
		return err
	}
	return showSpeeds(out, "events/s", contenders, results)
}

func (e *fileEnv) liveByHand(ctx context.Context, o options, suffix string) (perSecond float64, err error) {
	loop, err := e.hand.loop(ctx, e.hand.own, "handwritten live "+suffix, true)
	if err != nil {
		return 0, err
	}
	woken := make(chan struct{}, 1)
	following, stop := context.WithCancel(ctx)
	defer stop()
	followed := make(chan error, 1)
	go func() { followed <- loop.follow(following, woken, nil) }()
	begin := time.Now()
	n, _, err := write(ctx, o, "live"+suffix, func(ctx context.Context, stream string) error {
		err := e.hand.append(ctx, stream)
		select {
		case woken <- struct{}{}:
		default:
		}
		return err
	})
	stop()
	if err = errors.Join(err, <-followed); err != nil {
		return 0, err
	}
	for done := 1; done > 0; { // what the loop has not reached
		if done, err = loop.step(ctx); err != nil {
			return 0, err
		}
	}
	took := time.Since(begin)
	return float64(n) / took.Seconds(), e.hand.mustHaveCounted(ctx, loop.name, n)
}

func (e *fileEnv) liveRuntime(ctx context.Context, o options, suffix string) (perSecond float64, err error) {
	id := millrace.ProjectionID{Name: "live"}
	rt, err := e.runtime(id.Name)
	if err != nil {
		return 0, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- rt.Run(running) }()
	before, err := e.count(ctx)
	if err == nil {
		err = rt.WaitFor(ctx, id, int64(before)) // it is live, as the loop is
	}
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	n, _, err := write(ctx, o, "live"+suffix, func(ctx context.Context, stream string) error {
		_, err := e.store.Append(ctx, stream, event.Any, probe)
		return err
	})
	if err == nil {
		err = rt.WaitFor(ctx, id, int64(before+n))
	}
	took := time.Since(begin)
	stop()
	if err = errors.Join(err, <-ran); err != nil {
		return 0, err
	}
	return float64(n) / took.Seconds(), e.mustHaveCounted(ctx, id.Name, before+n)
}

func (e *fileEnv) latency(ctx context.Context, o options, out io.Writer) error {
	p := &prober{probes: o.probes}
	appendOne := func(ctx context.Context, stream string) (int64, error) {
		result, err := e.store.Append(ctx, stream, event.Any, probe)
		if err != nil {
			return 0, err
		}
		return result.Positions[0], nil
	}
	contenders := []contender[[]time.Duration]{
		{"file, latency, handwritten loop", func(ctx context.Context, round int) ([]time.Duration, error) {
			loop, err := e.hand.loop(ctx, e.hand.store, fmt.Sprint("handwritten latency ", round), true)
			if err != nil {
				return nil, err
			}
			woken, reached := make(chan struct{}, 1), make(chan int64)
			wake := func(ctx context.Context, stream string) (int64, error) {
				position, err := appendOne(ctx, stream)
				woken <- struct{}{}
				return position, err
			}
			took, err := p.take(ctx, func(ctx context.Context) error { return loop.follow(ctx, woken, reached) }, wake, reaches(reached))
			if err != nil {
				return nil, err
			}
			return took, e.mustHaveCounted(ctx, loop.name, 1+o.probes)
		}},
		{"file, latency, millrace", func(ctx context.Context, _ int) ([]time.Duration, error) {
			id := millrace.ProjectionID{Name: "latency"}
			rt, err := e.runtime(id.Name)
			if err != nil {
				return nil, err
			}
			took, err := p.take(ctx, rt.Run, appendOne, func(ctx context.Context, position int64) error { return rt.WaitFor(ctx, id, position) })
			if err != nil {
				return nil, err
			}
			n, err := e.count(ctx)
			if err != nil {
				return nil, err
			}
			return took, e.mustHaveCounted(ctx, id.Name, n)
		}},
	}
	results, err := runRounds(ctx, o.rounds, contenders)
	if err != nil {
		return err
	}
	return showLatencies(out, 0.5, contenders, results)
}

func (e *fileEnv) catchUp(ctx context.Context, o options, out io.Writer) error {
	before, err := e.count(ctx)
	if err != nil {
		return err
	}
	if err := fillStore(ctx, e.store.Append, o.events); err != nil {
		return fmt.Errorf("append the events: %w", err)
	}
	events := before + o.events
	contenders := []contender[float64]{
		{"file, catch-up, handwritten loop", func(ctx context.Context, round int) (float64, error) {
			begin := time.Now()
			loop, err := e.hand.loop(ctx, e.hand.store, fmt.Sprint("handwritten ", round), false)
			if err != nil {
				return 0, err
			}
			for n := 1; n > 0; {
				if n, err = loop.step(ctx); err != nil {
					return 0, err
				}
			}
			took := time.Since(begin)
			return float64(events) / took.Seconds(), e.mustHaveCounted(ctx, loop.name, events)
		}},
		{"file, catch-up, millrace", func(ctx context.Context, round int) (float64, error) {
			name := fmt.Sprint("millrace ", round)
			rt, err := e.runtime(name)
			if err != nil {
				return 0, err
			}
			begin := time.Now()
			if _, err := rt.RunUntilIdle(ctx); err != nil {
				return 0, err
			}
			took := time.Since(begin)
			return float64(events) / took.Seconds(), e.mustHaveCounted(ctx, name, events)
		}},
	}
	results, err := runRounds(ctx, o.rounds, contenders)
	if err != nil {
		return err
	}
	return showSpeeds(out, "events/s", contenders, results)
}

func (e *fileEnv) runtime(name string) (*millrace.Runtime, error) {
	rt, err := millrace.New(millrace.Config{Store: e.store})
	if err != nil {
		return nil, err
	}
	return rt, rt.Register(millrace.Projection{Name: name, Handler: sqlitestore.Batch(countInFile(name))})
}

// count returns the number of events of the store.
func (e *fileEnv) count(ctx context.Context) (n int, err error) {
	err = e.store.DB().QueryRowContext(ctx, "select count(*) from millrace_events").Scan(&n)
	return n, err
}

func (e *fileEnv) mustHaveCounted(ctx context.Context, contender string, want int) error {
	return mustHaveCounted(ctx, e.store.DB(), contender, want)
}

func mustHaveCounted(ctx context.Context, db *sql.DB, contender string, want int) error {
	var n int
	err := db.QueryRowContext(ctx, "select coalesce(sum(n), 0) from counts where contender = ?", contender).Scan(&n)
	if err == nil && n != want {
		err = fmt.Errorf("not verified: %s counted %d of %d events", contender, n, want)
	}
	return err
}

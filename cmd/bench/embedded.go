package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/sqlitestore"
)

var embeddedScenario = scenario{
	name:     "embedded",
	embedded: true,
	about: `The store in a file beside handwritten code over database/sql and the same driver, with the same settings (a synced commit)
		and prepared statements. No server is used. The handwritten code appends to a table of its own, one append per transaction. live
		is the time from the first append to the last application while writers append as fast as they can; the processor time of an
		event includes the system's, and depends less on what else runs. latency is from the return of an append until the event is
		applied; a channel wakes the handwritten loop.`,
	cases: func(o sizeOptions) []benchCase {
		var cases []benchCase
		for _, n := range o.fileWriters {
			cases = append(cases, fileCase("append, "+
				writersText(n), []metric{{"appends/s", "", higher, true}}, atLeastFile,
				func(e *fileEnv) []contender { return e.appends(o, n) }))
		}
		for _, n := range o.fileWriters {
			cases = append(cases, fileCase("live, "+
				writersText(n), []metric{{"events/s", "", higher, true}, {"CPU/event", "µs", lower, false}},
				atLeastFile,
				func(e *fileEnv) []contender { return e.live(o, n) }))
		}
		return append(cases,
			fileCase("latency", latencyMetrics, 0, func(e *fileEnv) []contender { return e.latency(o) }),
			fileCase("catch-up, "+thousands(int64(o.fileEvents))+
				" events", []metric{{"events/s", "", higher, true}}, atLeastFile,
				func(e *fileEnv) []contender { return e.catchUp(o) }))
	},
}

// atLeastFile is the goal for the ratio of millrace to the handwritten code.
const atLeastFile = 0.8

// fileCase returns a case whose first metric has a goal, unless atLeast is 0.
func fileCase(name string, metrics []metric, atLeast float64, contenders func(e *fileEnv) []contender) benchCase {
	c := benchCase{name: name, metrics: metrics, prepare: func(ctx context.Context, e *env) ([]contender, error) {
		files, err := newFileEnv(ctx, e)
		if err != nil {
			return nil, err
		}
		return contenders(files), nil
	}}
	if atLeast > 0 {
		c.goals = []goal{{contender: "millrace", metric: metrics[0].name, to: "handwritten", atLeast: atLeast}}
	}
	return c
}

// fileEnv has a store in a file, and the file of the handwritten code.
type fileEnv struct {
	store *sqlitestore.Store
	hand  *fileHand
	seen  tally // of the runtime
}

// newFileEnv creates both files in a temporary folder.
func newFileEnv(ctx context.Context, e *env) (*fileEnv, error) {
	folder, remove, err := program.TemporaryFolder("millrace-bench-")
	if err != nil {
		return nil, err
	}
	e.atEnd(func(context.Context) error { return remove() })
	f := &fileEnv{}
	path := filepath.Join(folder, "millrace.db")
	f.store, err = sqlitestore.Open(ctx, path, sqlitestore.Options{})
	if err != nil {
		return nil, err
	}
	e.atEnd(func(context.Context) error { f.store.Close(); return nil })
	if err := f.store.Migrate(ctx); err != nil {
		return nil, err
	}
	err = f.store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, createCounts)
		return err
	})
	if err != nil {
		return nil, err
	}
	f.hand, err = openFileHand(ctx, filepath.Join(folder, "handwritten.db"), path)
	if err != nil {
		return nil, err
	}
	e.atEnd(func(context.Context) error { return f.hand.close() })
	return f, nil
}

func (e *fileEnv) appends(o sizeOptions, writers int) []contender {
	measure := func(name string, appendOne appendFunc, count func(ctx context.Context) (int, error)) contender {
		return contender{name, func(ctx context.Context, round int) (figures, verify, error) {
			before, err := count(ctx)
			if err != nil {
				return nil, nil, err
			}
			n, rate, err := write(ctx, o.appendTime, fmt.Sprint(name, round), repeat(writers, appendOne))
			return figures{rate}, func(ctx context.Context) error {
				after, err := count(ctx)
				if err == nil && after != before+n {
					err = fmt.Errorf("%d events were appended to the file, want %d", after-before, n)
				}
				return err
			}, err
		}}
	}
	return []contender{
		measure("handwritten", e.hand.append, e.hand.count), measure("millrace", appendTo(e.store), e.count),
	}
}

// stopwatch measures events per second, and microseconds of processor time per event.
type stopwatch struct {
	begin time.Time
	cpu   time.Duration
}

func startStopwatch() stopwatch { return stopwatch{time.Now(), cpuTime()} }

func (s stopwatch) events(n int) figures {
	rate, cpu := perSecond(n, s.begin), cpuTime()-s.cpu
	return figures{rate, float64(cpu.Microseconds()) / float64(n)}
}

// live compares how fast events that are appended one at a time are applied, from the first append to the last commit.
func (e *fileEnv) live(o sizeOptions, writers int) []contender {
	return []contender{
		{"handwritten", func(ctx context.Context, round int) (figures, verify, error) {
			return e.liveByHand(ctx, o, writers, round)
		}},
		{"millrace", func(ctx context.Context, round int) (figures, verify, error) {
			return e.liveRuntime(ctx, o, writers, round)
		}},
	}
}

func (e *fileEnv) liveByHand(ctx context.Context, o sizeOptions, writers, round int) (figures, verify, error) {
	loop, err := e.hand.loop(ctx, e.hand.own, fmt.Sprint("handwritten live ", round), true)
	if err != nil {
		return nil, nil, err
	}
	woken := make(chan struct{}, 1)
	stop := running(ctx, func(ctx context.Context) error { return loop.follow(ctx, woken, nil) })
	watch := startStopwatch()
	n, _, err := write(ctx, o.appendTime, fmt.Sprint("live", round), repeat(writers, waking(e.hand.append, woken)))
	err = errors.Join(err, stop())
	if err != nil {
		return nil, nil, err
	}
	for done := 1; done > 0; { // what the loop has not reached
		done, err = loop.step(ctx)
		if err != nil {
			return nil, nil, err
		}
	}
	return watch.events(n), all(e.hand.counted(loop.name, n), loop.tally.inOrder(n)), nil
}

// waking returns a writer that wakes a loop after each append.
func waking(writer appendFunc, woken chan<- struct{}) appendFunc {
	return func(ctx context.Context, stream string) (int64, error) {
		position, err := writer(ctx, stream)
		select {
		case woken <- struct{}{}:
		default:
		}
		return position, err
	}
}

// verify returns a verification that the projection of that name has applied all events of the store.
func (e *fileEnv) verify(name string, seen *tally) verify {
	return func(ctx context.Context) error {
		n, err := e.count(ctx)
		if err != nil {
			return err
		}
		return all(fileCounted(e.store.DB(), name, n), seen.inOrder(n))(ctx)
	}
}

// running runs a projection that is live, as a loop is, and calls fn.
func (e *fileEnv) running(ctx context.Context, name string,
	fn func(ctx context.Context, rt *millrace.Runtime, id millrace.ProjectionID) error) error {
	id := millrace.ProjectionID{Name: name}
	rt, err := e.runtime(name, &e.seen)
	if err != nil {
		return err
	}
	return while(ctx, rt.Run, func() error {
		n, err := e.count(ctx)
		if err != nil {
			return err
		}
		if err := rt.WaitFor(ctx, id, int64(n)); err != nil {
			return err
		}
		return fn(ctx, rt, id)
	})
}

func (e *fileEnv) liveRuntime(ctx context.Context, o sizeOptions, writers, round int) (f figures, _ verify, err error) {
	err = e.running(ctx, "live", func(ctx context.Context, rt *millrace.Runtime, id millrace.ProjectionID) error {
		before, err := e.count(ctx)
		if err != nil {
			return err
		}
		watch := startStopwatch()
		n, _, err := write(ctx, o.appendTime, fmt.Sprint("live", round), repeat(writers, appendTo(e.store)))
		if err != nil {
			return err
		}
		if err := rt.WaitFor(ctx, id, int64(before+n)); err != nil {
			return err
		}
		f = watch.events(n)
		return nil
	})
	return f, e.verify("live", &e.seen), err
}

// probes appends events one at a time, and returns the percentiles of the time until each is applied.
func probes(ctx context.Context, o sizeOptions, appendOne appendFunc,
	applied func(ctx context.Context, position int64) error) (figures, error) {
	var took []time.Duration
	for i := range 1 + o.probes {
		if err := pause(ctx, probePause); err != nil {
			return nil, err
		}
		position, err := appendOne(ctx, fmt.Sprint("probe", i))
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		if err := applied(ctx, position); err != nil {
			return nil, err
		}
		if i > 0 { // the first one warms up
			took = append(took, time.Since(begin))
		}
	}
	return figures{percentile(took, 0.5), percentile(took, 0.99)}, nil
}

func (e *fileEnv) latency(o sizeOptions) []contender {
	return []contender{
		{"handwritten", func(ctx context.Context, round int) (figures, verify, error) {
			loop, err := e.hand.loop(ctx, e.hand.store, fmt.Sprint("handwritten latency ", round), true)
			if err != nil {
				return nil, nil, err
			}
			woken, reached := make(chan struct{}, 1), make(chan int64)
			stop := running(ctx, func(ctx context.Context) error { return loop.follow(ctx, woken, reached) })
			f, err := probes(ctx, o, waking(appendTo(e.store), woken), reaches(reached))
			n := 1 + o.probes
			return f, all(fileCounted(e.store.DB(), loop.name, n), loop.tally.inOrder(n)), errors.Join(err, stop())
		}},
		{"millrace", func(ctx context.Context, _ int) (f figures, _ verify, err error) {
			err = e.running(ctx, "latency", func(ctx context.Context,
				rt *millrace.Runtime, id millrace.ProjectionID) (err error) {
				f, err = probes(ctx, o, appendTo(e.store),
					func(ctx context.Context, position int64) error { return rt.WaitFor(ctx, id, position) })
				return err
			})
			return f, e.verify("latency", &e.seen), err
		}},
	}
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

func (e *fileEnv) catchUp(o sizeOptions) []contender {
	// The first round of either contender fills the store.
	fill := func(ctx context.Context) error {
		n, err := e.count(ctx)
		if err != nil || n > 0 {
			return err
		}
		return fillStore(ctx, e.store.Append, o.fileEvents)
	}
	return []contender{
		{"handwritten", func(ctx context.Context, round int) (figures, verify, error) {
			if err := fill(ctx); err != nil {
				return nil, nil, err
			}
			begin := time.Now()
			loop, err := e.hand.loop(ctx, e.hand.store, fmt.Sprint("handwritten ", round), false)
			if err != nil {
				return nil, nil, err
			}
			for n := 1; n > 0; {
				n, err = loop.step(ctx)
				if err != nil {
					return nil, nil, err
				}
			}
			rate := perSecond(o.fileEvents, begin)
			return figures{rate}, all(fileCounted(e.store.DB(), loop.name, o.fileEvents),
				loop.tally.inOrder(o.fileEvents)), nil
		}},
		{"millrace", func(ctx context.Context, round int) (figures, verify, error) {
			if err := fill(ctx); err != nil {
				return nil, nil, err
			}
			var seen tally
			name := fmt.Sprint("millrace ", round)
			begin := time.Now()
			rt, err := e.runtime(name, &seen)
			if err != nil {
				return nil, nil, err
			}
			_, err = rt.RunUntilIdle(ctx)
			rate := perSecond(o.fileEvents, begin)
			return figures{rate}, e.verify(name, &seen), err
		}},
	}
}

func (e *fileEnv) runtime(name string, seen *tally) (*millrace.Runtime, error) {
	rt, err := millrace.New(millrace.Config{Store: e.store})
	if err != nil {
		return nil, err
	}
	return rt, rt.Register(millrace.Projection{Name: name, Handler: sqlitestore.Batch(countInFile(name, seen))})
}

// count returns the number of events of the store.
func (e *fileEnv) count(ctx context.Context) (n int, err error) {
	err = e.store.DB().QueryRowContext(ctx, "select count(*) from millrace_events").Scan(&n)
	return n, err
}

// fileCounted returns a verification that the handler of a contender has counted this number of events.
func fileCounted(db *sql.DB, contender string, want int) verify {
	return func(ctx context.Context) error {
		var n int
		err := db.QueryRowContext(ctx, "select coalesce(sum(n), 0) from counts where contender = ?", contender).Scan(&n)
		if err == nil && n != want {
			err = fmt.Errorf("%s counted %d events, want %d", contender, n, want)
		}
		return err
	}
}

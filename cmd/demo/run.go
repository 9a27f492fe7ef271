package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/projection"
)

const (
	// standstill is how long a run may make no progress before it fails.
	standstill = time.Minute
	// pollEvery is how often the status is read to see whether projections have started or caught up.
	pollEvery = 50 * time.Millisecond
)

// runDemo is the whole demo. It fails if a read model is wrong.
func runDemo(ctx context.Context, o options, out io.Writer) (s summary, err error) {
	from, name := o.workload()
	found := survey{events: o.events}
	if o.input != "" || o.poison > 0 {
		found, err = inspect(ctx, from, o.poison, o.seed)
		if err != nil {
			return s, err
		}
	}
	log, closeLog, err := openLog(o.log)
	if err != nil {
		return s, err
	}
	defer closeLog()
	at, stop, err := o.place(ctx)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	d, err := at.create(ctx, o.writers, log)
	if err != nil {
		return s, err
	}
	defer d.Close()
	if !o.keep {
		defer func() { err = errors.Join(err, d.drop(ctx)) }()
	}
	on, err := d.describe(ctx)
	if err != nil {
		return s, err
	}
	r := &run{database: d, load: newLoad(d, found.events, o), from: from, fault: newFault(found.poison, o.action()),
		replays: o.replay, view: console.NewView(out), figures: newFigures(found.events)}
	title := []string{fmt.Sprintf("%d events %s, %d writers", found.events, name, o.writers), "on " + on, at.other()}
	if note := o.describePoison(); note != "" {
		title = append(title, note)
	}
	if err := r.view.Print(append(title, "")...); err != nil {
		return s, err
	}
	return r.do(ctx, o, log)
}

// run applies a workload while it is appended.
type run struct {
	database database
	runtime  *millrace.Runtime
	load     *load
	from     source
	fault    *fault
	replays  bool // at the end the fault is fixed, and parked events are replayed
	view     *console.View
	figures  figures

	start                     time.Time // of the first append
	appending, applying, took time.Duration
}

// do applies the workload, checks the read models, and prints the result.
func (r *run) do(ctx context.Context, o options, log *zap.Logger) (s summary, err error) {
	r.runtime, err = newRuntime(r.database, millrace.Config{Logger: log}, r.fault)
	if err != nil {
		return s, err
	}
	if err := r.apply(ctx); err != nil {
		return s, err
	}
	status, err := r.runtime.Status(ctx, ofDemo)
	if err != nil {
		return s, err
	}
	v, err := check(ctx, r.database, status, r.fault)
	if err != nil {
		return s, err
	}
	v.requireEvents(r.load.appended.Load())
	s = r.summary(status, v)
	kept := ""
	if o.keep {
		kept = r.database.removal()
	}
	if err := s.print(r.view, v, kept, o.json); err != nil {
		return s, fmt.Errorf("print the summary: %w", err)
	}
	return s, v.err()
}

// newRuntime returns a runtime with the demo's projections, which have this fault.
func newRuntime(d database, config millrace.Config, f *fault) (*millrace.Runtime, error) {
	config.Store = d
	runtime, err := millrace.New(config)
	if err != nil {
		return nil, err
	}
	for _, m := range readModels {
		if err := runtime.Register(m.projection(d, f)); err != nil {
			return nil, err
		}
	}
	return runtime, nil
}

// apply runs the projections until everything is applied.
func (r *run) apply(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	running, stop := context.WithCancel(ctx)
	group.Go(func() error {
		err := r.runtime.Run(running)
		if err == nil && running.Err() == nil {
			err = errors.New("the runtime ended unexpectedly")
		}
		return err
	})
	group.Go(func() error {
		defer stop()
		return r.work(ctx)
	})
	return group.Wait()
}

// work appends the workload and waits until it is applied.
func (r *run) work(ctx context.Context) error {
	if err := r.during(ctx, starting, r.started); err != nil {
		return err
	}
	r.start = time.Now()
	if err := r.during(ctx, loading, func(ctx context.Context) error { return r.load.run(ctx, r.from) }); err != nil {
		return err
	}
	r.appending = time.Since(r.start)
	if err := r.during(ctx, catchingUp, r.caughtUp); err != nil {
		return err
	}
	if err := r.refresh(ctx); err != nil {
		return err
	}
	r.applying = r.figures.at
	if r.replays {
		if err := r.replay(ctx); err != nil {
			return err
		}
	}
	r.took = time.Since(r.start)
	r.figures.phase = finished
	return r.show(ctx)
}

// started waits until all projections run, so that rates do not include their start.
func (r *run) started(ctx context.Context) error {
	return poll(ctx, func() (bool, error) {
		status, err := r.runtime.Status(ctx, ofDemo)
		running := 0
		for _, p := range status.Projections {
			if p.Owner != "" && p.Owner == status.Node && p.State != admin.StateStarting {
				running++
			}
		}
		return running == len(readModels), err
	})
}

// caughtUp waits until every projection has handled all events.
func (r *run) caughtUp(ctx context.Context) error {
	for _, m := range readModels {
		if err := r.runtime.WaitFor(ctx, m.id(), r.load.last.Load()); err != nil {
			return err
		}
	}
	return nil
}

// replay fixes the fault and replays the parked events.
func (r *run) replay(ctx context.Context) error {
	var parked deadLetterSummary
	for _, m := range readModels {
		found, err := deadLettersOf(ctx, r.database, m)
		if err != nil {
			return err
		}
		parked.add(found)
	}
	r.fault.fixed.Store(true)
	r.figures.news = fmt.Sprintf("%d events are parked: %d failed, %d follow a failed event; the handlers are repaired, and all are replayed",
		parked.Parked, parked.Parked-parked.Behind, parked.Behind)
	r.figures.phase = replaying
	if err := r.show(ctx); err != nil { // the replay may end before the next frame
		return err
	}
	err := r.during(ctx, replaying, func(ctx context.Context) error {
		for _, m := range readModels {
			if _, err := r.database.DeadLetters(m.id()).Replay(ctx,
				projection.DeadLetterFilter{All: true, OutOfOrder: r.fault.onError == projection.ActionPark},
				int(parked.Parked)); err != nil {
				return err
			}
		}
		return nil
	})
	r.figures.news = ""
	return err
}

// during shows the figures while work runs. It fails when there is no progress.
func (r *run) during(ctx context.Context, p phase, work func(ctx context.Context) error) error {
	r.figures.phase = p
	group, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	group.Go(func() error {
		defer close(done)
		return work(ctx)
	})
	group.Go(func() error {
		ticker := time.NewTicker(r.view.Every(time.Second))
		defer ticker.Stop()
		movement, movedAt := r.figures.movement(), time.Now()
		for {
			select {
			case <-done:
				return nil
			case <-ticker.C:
			}
			if err := r.show(ctx); err != nil {
				return err
			}
			if now := r.figures.movement(); now != movement {
				movement, movedAt = now, time.Now()
			} else if time.Since(movedAt) > standstill {
				return fmt.Errorf("no progress for %v while %s", standstill, p)
			}
		}
	})
	return group.Wait()
}

// refresh reads the status into the figures.
func (r *run) refresh(ctx context.Context) error {
	status, err := r.runtime.Status(ctx, ofDemo)
	if err != nil {
		return err
	}
	if r.start.IsZero() {
		return nil
	}
	f := &r.figures
	f.at, f.appended = time.Since(r.start), r.load.appended.Load()
	f.observe(status)
	if r.applying == 0 {
		appending := r.appending
		if appending == 0 {
			appending = f.at
		}
		f.measure(appending, f.at)
	}
	return nil
}

// show refreshes the figures and shows them.
func (r *run) show(ctx context.Context) error {
	if err := r.refresh(ctx); err != nil {
		return err
	}
	lines := []string{r.figures.line()}
	if r.view.IsTerminal() {
		lines = r.figures.table()
	}
	if err := r.view.Show(lines...); err != nil {
		return fmt.Errorf("show the figures: %w", err)
	}
	return nil
}

// poll calls done until it reports true.
func poll(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// openLog returns a logger that writes to a file, or a silent one.
func openLog(path string) (*zap.Logger, func(), error) {
	if path == "" {
		return zap.NewNop(), func() {}, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("open the log: %w", err)
	}
	encoder := zap.NewProductionEncoderConfig()
	encoder.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(encoder), zapcore.AddSync(file), zap.InfoLevel)
	return zap.New(core), func() { file.Close() }, nil
}

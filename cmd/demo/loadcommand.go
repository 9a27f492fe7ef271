package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/program"
)

const (
	// watchable is how many events per second a load appends if nothing else is said: one can look on.
	watchable = 200
	// progressEvery is how far apart the lines on a load are where there is no terminal.
	progressEvery = 2 * time.Second
)

func loadCommand(hurry context.Context) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Append the expense claims for nodes to apply",
		Long: `Appends the expense-claim process that the plain demo appends, for the nodes on the same database to apply, and ends.
It creates the tables where they are missing. Each load has streams of its own, so that it can be repeated, and several
can append at once.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.databaseURL, err = sharedURL(cmd, o.databaseURL); err != nil {
				return err
			}
			if err := o.validate(false); err != nil {
				return err
			}
			return runLoad(cmd.Context(), hurry, o, cmd.OutOrStdout())
		},
	}
	databaseFlag(cmd, &o.databaseURL)
	f := cmd.Flags()
	f.Int64Var(&o.events, "events", 20_000, "how many events are appended")
	f.IntVar(&o.rate, "rate", watchable, "events per second to append; 0 is as fast as possible")
	f.IntVar(&o.writers, "writers", 16, "how many append at once")
	f.Uint64Var(&o.seed, "seed", 1, "what the events are made from")
	f.SortFlags = false
	return cmd
}

// runLoad returns when all is appended; nobody need have applied it.
func runLoad(ctx, hurry context.Context, o options, out io.Writer) (err error) {
	defer func() { err = interruption(ctx, err) }()
	d, err := openShared(ctx, hurry, o.databaseURL, o.writers, true, zap.NewNop())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(hurry)) }()
	l := newLoad(d.store, nil, new(fault), o.events, o)
	defer l.open(apart(generate(o.events, o.seed), short(uuid.NewString())))()
	start := time.Now()
	done := make(chan error, 1)
	appending, stop := context.WithCancel(ctx)
	defer stop()
	go func() { done <- l.concurrently(appending) }()
	progress := newProgress(out)
	ticker := time.NewTicker(progress.every())
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			return errors.Join(err, progress.show(l.told(start)))
		case <-ticker.C:
			if err := progress.show(l.told(start)); err != nil {
				stop()
				<-done
				return fmt.Errorf("show the progress: %w", err)
			}
		}
	}
}

// apart gives the streams of a source names that no other load has.
func apart(from source, prefix string) source {
	return func(yield func(record, error) bool) {
		for r, err := range from {
			r.stream = prefix + "-" + r.stream
			if !yield(r, err) {
				return
			}
		}
	}
}

// told is how far a load has come.
func (l *load) told(start time.Time) string {
	n, took := l.appended.Load(), time.Since(start)
	return fmt.Sprintf("appended %d of %d events in %.1f s, %.0f/s", n, l.total, took.Seconds(), perSecond(n, took.Seconds()))
}

// progress shows one line after the other: in place on a terminal, below one another elsewhere.
type progress struct {
	out    io.Writer
	canvas *canvas // nil where out is no terminal
}

func newProgress(out io.Writer) progress { return progress{out, newCanvas(out)} }

func (p progress) every() time.Duration {
	if p.canvas != nil {
		return 200 * time.Millisecond
	}
	return progressEvery
}

func (p progress) show(lines ...string) error {
	if p.canvas != nil {
		return p.canvas.draw(lines)
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(p.out, program.OneLine(line)); err != nil {
			return err
		}
	}
	return nil
}

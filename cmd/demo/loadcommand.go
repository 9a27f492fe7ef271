package main

import (
	"context"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/internal/report"
)

// watchableRate is the default rate of a load, in events per second.
const watchableRate = 200

// progressEvery is how often commands print their progress if their output is not a terminal.
const progressEvery = 2 * time.Second

func loadCommand() *cobra.Command {
	var o options
	var flags storeFlags
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Append the expense claims for nodes to apply",
		Long: `Appends expense claims, for the nodes on the same store to apply, and ends. It creates missing tables. Each load has
streams of its own, so that loads can be repeated and can run at the same time.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := flags.place(cmd)
			if err != nil {
				return err
			}
			if err := o.validate(false); err != nil {
				return err
			}
			return runLoad(cmd.Context(), at, o, cmd.OutOrStdout())
		},
	}
	flags.add(cmd)
	f := cmd.Flags()
	f.Int64Var(&o.events, "events", 20_000, "number of events to append")
	f.IntVar(&o.rate, "rate", watchableRate, "events to append per second; 0 is as fast as possible")
	f.IntVar(&o.writers, "writers", 16, "number of concurrent writers")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the generated events")
	f.SortFlags = false
	return cmd
}

// runLoad returns when all events are appended.
func runLoad(ctx context.Context, at place, o options, out io.Writer) error {
	d, err := at.share(ctx, o.writers, zap.NewNop())
	if err != nil {
		return err
	}
	defer d.Close()
	l := newLoad(d, o.events, o)
	start, done := time.Now(), make(chan error, 1)
	appending, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		done <- l.run(appending, withPrefix(generate(o.events, o.seed), report.Short(uuid.NewString())))
	}()
	view := console.NewView(out)
	ticker := time.NewTicker(view.Every(progressEvery))
	defer ticker.Stop()
	for {
		select {
		case err = <-done:
			if printErr := view.Show(l.progress(start)); err == nil {
				err = printErr
			}
			return err
		case <-ticker.C:
			err = view.Show(l.progress(start))
			if err != nil {
				stop()
				<-done
				return err
			}
		}
	}
}

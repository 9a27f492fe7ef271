package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/program"
)

// longDead is for how long a dead node is shown.
const longDead = time.Minute

type statusOptions struct {
	databaseURL string
	watch       time.Duration // 0: look once
}

func statusCommand(hurry context.Context) *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status [-watch [interval]]",
		Short: "Show which node runs which projection, and how far each has come",
		Long: `Shows a table of the projections: the node that owns each, the epoch of the lease, the checkpoint, how many positions it is
behind, how many events are parked and were skipped, and its state; and a table of the nodes. With -watch it does so again and again, until
it is interrupted.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.databaseURL, err = sharedURL(cmd, o.databaseURL); err != nil {
				return err
			}
			watched := cmd.Flags().Changed("watch")
			if len(args) > 0 {
				if !watched {
					return fmt.Errorf("%q is no flag, and -watch, which takes an interval, is not given", args[0])
				}
				if o.watch, err = time.ParseDuration(args[0]); err != nil {
					return fmt.Errorf("-watch is %q, but must be an interval such as 500ms", args[0])
				}
			}
			if watched && o.watch < time.Millisecond {
				return fmt.Errorf("-watch is %v, but must be at least 1ms", o.watch)
			}
			return runStatus(cmd.Context(), hurry, o, cmd.OutOrStdout())
		},
	}
	databaseFlag(cmd, &o.databaseURL)
	f := cmd.Flags()
	f.DurationVar(&o.watch, "watch", 0, "show it again and again, so far apart")
	f.Lookup("watch").NoOptDefVal = "1s"
	f.SortFlags = false
	return cmd
}

func runStatus(ctx, hurry context.Context, o statusOptions, out io.Writer) (err error) {
	d := &database{keep: true}
	defer func() { err = errors.Join(err, d.close(hurry)) }()
	if err := d.connect(ctx, o.databaseURL, 0, zap.NewNop()); err != nil {
		return interruption(ctx, err)
	}
	runtime, err := millrace.New(millrace.Config{Store: d.store})
	if err != nil {
		return err
	}
	look := func(ctx context.Context) ([]string, error) {
		if err := d.recognise(ctx); err != nil {
			return nil, err
		}
		status, err := runtime.Status(ctx)
		return statusLines(status), err
	}
	show := newProgress(out).show
	if o.watch > 0 {
		return watch(ctx, o.watch, look, show)
	}
	lines, err := look(ctx)
	if err != nil {
		return interruption(ctx, err)
	}
	return show(lines...)
}

// watch shows what it sees again and again, until it is interrupted. What keeps it from seeing anything may pass: the
// tables may be about to be made, or the database be away.
func watch(ctx context.Context, interval time.Duration, look func(context.Context) ([]string, error), show func(...string) error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, lookLimit)
		lines, err := look(limited)
		cancel()
		if ctx.Err() != nil {
			return wellEnded(ctx)
		}
		if err != nil {
			lines = []string{"cannot see the projections: " + program.OneLine(err.Error())}
		}
		if err := show(append([]string{time.Now().Format(clock)}, lines...)...); err != nil {
			return fmt.Errorf("show the status: %w", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return wellEnded(ctx)
		}
	}
}

// statusLines are the two tables.
func statusLines(status millrace.Status) []string {
	lines := []string{fmt.Sprintf("%-16s %-9s %6s %11s %9s %7s %7s  %s", "projection", "owner", "epoch", "checkpoint", "behind",
		"parked", "skipped", "state")}
	for _, p := range status.Projections {
		lines = append(lines, fmt.Sprintf("%-16s %-9s %6d %11d %9d %7d %7d  %s", p.ID.Name, orDash(short(p.Owner)), p.Epoch, p.Checkpoint, p.Behind,
			p.Parked, p.Skipped, program.OneLine(stateFromOutside(p))))
	}
	if len(status.Projections) == 0 {
		lines = append(lines, "none: no node has run yet")
	}
	return append(append(lines, ""), nodeLines(status)...)
}

// stateFromOutside is a projection's state for one who runs none.
func stateFromOutside(p millrace.ProjectionStatus) string {
	state := p.State
	switch {
	case p.State == millrace.StateElsewhere:
		state = "running"
	case p.State == millrace.StateNotOwned && p.Owner != "":
		state = "its node is dead"
	}
	if p.FailingPosition > 0 {
		state += ", " + trouble(p)
	}
	return state
}

// nodeLines are the nodes, but for those that have long been dead and that nothing waits for.
func nodeLines(status millrace.Status) []string {
	lines := []string{fmt.Sprintf("%-9s %11s  %-8s %s", "node", "projections", "state", "last heartbeat")}
	for _, n := range status.Nodes {
		state := "dead"
		switch {
		case n.Leaving:
			state = "leaving"
		case n.Alive:
			state = "alive"
		case n.Leases == 0 && n.Silent > longDead:
			continue
		}
		lines = append(lines, fmt.Sprintf("%-9s %11d  %-8s %.1f s ago", short(n.ID), n.Leases, state, n.Silent.Seconds()))
	}
	if len(lines) == 1 {
		lines = append(lines, "none")
	}
	return lines
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/projection"
)

// ofDemo selects the demo's projections, and the demo's tenant also before a node has run.
var ofDemo = millrace.StatusFilter{Tenants: []string{projection.DefaultTenant}}

// longDead is how long a dead node without leases is shown.
const longDead = time.Minute

type statusOptions struct {
	store storeFlags
	watch time.Duration // 0: show it once
}

func statusCommand() *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status [-watch [interval]]",
		Short: "Show which node runs which projection, and how far it is",
		Long: `Shows a table of projections (owner, epoch of the lease, positions behind, parked events, state) and a table of nodes. With
-watch it repeats them until it is interrupted.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			at, err := o.store.place(cmd)
			if err != nil {
				return err
			}
			watched := cmd.Flags().Changed("watch")
			if len(args) > 0 {
				if !watched {
					return fmt.Errorf("unexpected argument %q: only -watch takes an interval", args[0])
				}
				if o.watch, err = time.ParseDuration(args[0]); err != nil {
					return fmt.Errorf("-watch must be an interval such as 500ms: %q", args[0])
				}
			}
			if watched && o.watch < time.Millisecond {
				return fmt.Errorf("-watch must be at least 1ms: %v", o.watch)
			}
			return runStatus(cmd.Context(), at, o.watch, cmd.OutOrStdout())
		},
	}
	o.store.add(cmd)
	f := cmd.Flags()
	f.DurationVar(&o.watch, "watch", 0, "repeat after this interval")
	f.Lookup("watch").NoOptDefVal = "1s"
	f.SortFlags = false
	return cmd
}

func runStatus(ctx context.Context, at place, watch time.Duration, out io.Writer) error {
	view := newView(out)
	if watch > 0 {
		return watchStatus(ctx, at, watch, view)
	}
	lines, err := readStatus(ctx, at)
	if err != nil {
		return err
	}
	return view.print(lines...)
}

func readStatus(ctx context.Context, at place) ([]string, error) {
	d, err := at.open(ctx)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	runtime, err := millrace.New(millrace.Config{Store: d})
	if err != nil {
		return nil, err
	}
	status, err := runtime.Status(ctx, ofDemo)
	if err != nil {
		return nil, err
	}
	summary, err := runtime.Summary(ctx)
	return statusLines(status, summary), err
}

// watchStatus repeats the status until it is interrupted. It shows errors and continues, because the tables may not exist yet, or
// the database may be down.
func watchStatus(ctx context.Context, at place, every time.Duration, view *view) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, statusLimit)
		lines, err := readStatus(limited, at)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			lines = []string{"the status cannot be read: " + program.OneLine(err.Error())}
		}
		if err := view.show(append([]string{time.Now().Format(clock)}, lines...)...); err != nil {
			return fmt.Errorf("show the status: %w", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// statusLines returns both tables, for a terminal of at least 60 columns.
func statusLines(status millrace.Status, summary millrace.Summary) []string {
	lines := []string{fmt.Sprintf("%-14s %-8s %5s %8s %6s  %s", "projection", "owner", "epoch", "behind", "parked", "state")}
	var notes []string
	for _, p := range status.Projections {
		owner := "-"
		if p.Owner != "" {
			owner = short(p.Owner)
		}
		lines = append(lines, fmt.Sprintf("%-14s %-8s %5d %8d %6d  %s", p.ID.Name, owner, p.Epoch, p.Behind, p.Parked, describeState(p)))
		if p.FailingPosition > 0 {
			notes = append(notes, p.ID.Name+", "+program.OneLine(problem(p)))
		}
	}
	if len(status.Projections) == 0 {
		lines = append(lines, "none: no node has run yet")
	}
	lines = append(lines, notes...)
	if len(summary.States) > 0 {
		lines = append(lines, "as their nodes see them: "+describeStates(summary.States))
	}
	return append(append(lines, ""), nodeLines(summary)...)
}

// describeStates returns how many projections are in each state.
func describeStates(states map[millrace.State]int) string {
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		parts = append(parts, fmt.Sprintf("%d %s", states[state], state))
	}
	return strings.Join(parts, ", ")
}

// describeState returns a projection's state as a process sees it that runs no projection.
func describeState(p millrace.ProjectionStatus) string {
	switch {
	case p.State == millrace.StateElsewhere:
		return "running"
	case p.State == millrace.StateNotOwned && p.Owner != "":
		return "node dead"
	}
	return string(p.State)
}

// nodeLines returns the table of nodes, without those that died long ago and have no leases.
func nodeLines(summary millrace.Summary) []string {
	lines := []string{fmt.Sprintf("%-8s %11s  %-8s %s", "node", "projections", "state", "last heartbeat")}
	for _, n := range summary.Nodes {
		state := "dead"
		switch {
		case n.Draining:
			state = "draining"
		case n.Alive:
			state = "alive"
		case n.Leases == 0 && n.Silent > longDead:
			continue
		}
		lines = append(lines, fmt.Sprintf("%-8s %11d  %-8s %.1f s ago", short(n.ID), n.Leases, state, n.Silent.Seconds()))
	}
	if len(lines) == 1 {
		lines = append(lines, "none")
	}
	return lines
}

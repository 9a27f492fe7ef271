package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/report"
	"github.com/millrace-go/millrace/projection"
)

// ofDemo selects the demo's projections, and the demo's tenant also before a node has run.
var ofDemo = admin.StatusFilter{Tenants: []string{projection.DefaultTenant}}

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
				o.watch, err = time.ParseDuration(args[0])
				if err != nil {
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
	if watch > 0 {
		return report.Watch(ctx, out, watch, func(ctx context.Context) report.Snapshot { return readStatus(ctx, at) })
	}
	snapshot := readStatus(ctx, at)
	if snapshot.Err != nil {
		return snapshot.Err
	}
	return report.Print(out, snapshot)
}

// readStatus opens the store each time, because its tables may not exist yet.
func readStatus(ctx context.Context, at place) (s report.Snapshot) {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	s.At = time.Now()
	d, err := at.open(ctx)
	if err != nil {
		s.Err = err
		return s
	}
	defer d.Close()
	a, err := admin.New(d)
	if err != nil {
		s.Err = err
		return s
	}
	s.Status, s.Err = a.Status(ctx, ofDemo)
	if s.Err != nil {
		return s
	}
	s.Summary, s.Err = a.Summary(ctx)
	return s
}

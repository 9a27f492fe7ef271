package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace"
)

// checkEvery is how far apart the looks whether everything is applied are.
const checkEvery = 200 * time.Millisecond

type checkOptions struct {
	databaseURL string
	wait        time.Duration
}

func checkCommand(hurry context.Context) *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Compare every read model with a plain SQL count over the events",
		Long: `Waits until nothing is appended any more and the nodes have applied everything, and compares every read model with a plain
SQL count over the events. The exit status is 0 only if each of them is right.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.databaseURL, err = sharedURL(cmd, o.databaseURL); err != nil {
				return err
			}
			if o.wait < 0 {
				return fmt.Errorf("-wait is negative: %v", o.wait)
			}
			return runCheck(cmd.Context(), hurry, o, cmd.OutOrStdout())
		},
	}
	databaseFlag(cmd, &o.databaseURL)
	f := cmd.Flags()
	f.DurationVar(&o.wait, "wait", standstill, "how long to wait for projections that do not move")
	f.SortFlags = false
	return cmd
}

func runCheck(ctx, hurry context.Context, o checkOptions, out io.Writer) (err error) {
	defer func() { err = interruption(ctx, err) }()
	d, err := openShared(ctx, hurry, o.databaseURL, 0, false, zap.NewNop())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(hurry)) }()
	runtime, err := millrace.New(millrace.Config{Store: d.store})
	if err != nil {
		return err
	}
	v, err := checkSettled(ctx, d, runtime, o.wait)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d events in %d streams\n", v.events, v.streams)
	fmt.Fprintf(&b, "%-16s %8s %8s   against a plain SQL count over the events\n", "projection", "rows", "parked")
	for _, m := range v.models {
		fmt.Fprintf(&b, "%-16s %8d %8d   %s\n", m.name, m.rows, m.parked, outcome(m.wrong, m.disordered))
	}
	v.explain(&b)
	if len(v.wrong) == 0 {
		fmt.Fprintln(&b, v.sentence())
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("print the verdict: %w", err)
	}
	return v.err()
}

// checkSettled checks when all is applied. What was appended while it checked might be in some figures and not in
// others, so then it checks again.
func checkSettled(ctx context.Context, d *database, runtime *millrace.Runtime, wait time.Duration) (verdict, error) {
	for {
		head, err := settled(ctx, runtime, wait)
		if err != nil {
			return verdict{}, err
		}
		v, err := check(ctx, d.pool, d.store, new(fault))
		if err != nil {
			return v, err
		}
		status, err := runtime.Status(ctx)
		if err != nil {
			return v, err
		}
		if headOf(status) == head {
			return v, nil
		}
	}
}

// settled waits until every projection has dealt with every event, and returns the head at which that was so.
func settled(ctx context.Context, runtime *millrace.Runtime, wait time.Duration) (head int64, err error) {
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	seen := ""
	movedAt := time.Now()
	for {
		status, err := runtime.Status(ctx)
		if err != nil {
			return 0, err
		}
		behind, stand := laggards(status)
		if behind == "" {
			return headOf(status), nil
		}
		if stand != seen {
			seen, movedAt = stand, time.Now()
		} else if time.Since(movedAt) >= wait {
			return 0, fmt.Errorf("nothing has moved for %v, and it is not all applied: %s; is there a node that runs?", wait, behind)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// laggards are the projections that have something to do, for people, and where all of them stand.
func laggards(status millrace.Status) (behind, stand string) {
	var late, at []string
	for _, m := range readModels {
		p := millrace.ProjectionStatus{Behind: headOf(status)} // one that never ran has everything to do
		for _, found := range status.Projections {
			if found.ID.Name == m.name {
				p = found
			}
		}
		if p.Behind > 0 {
			late = append(late, fmt.Sprintf("%s is %d behind", m.name, p.Behind))
		}
		at = append(at, fmt.Sprint(p.Checkpoint))
	}
	return strings.Join(late, ", "), strings.Join(at, " ")
}

// headOf is the highest position that is visible.
func headOf(status millrace.Status) (head int64) {
	for _, t := range status.Tenants {
		head = max(head, t.Head)
	}
	return head
}

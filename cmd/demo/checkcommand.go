package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
)

type checkOptions struct {
	store storeFlags
	wait  time.Duration
}

func checkCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Compare every read model with a plain SQL count over the events",
		Long: `Waits until the nodes have applied all events, and compares every read model with a plain SQL count over the events. If
events are appended meanwhile, it starts again. The exit status is 0 only if every read model is right.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := o.store.place(cmd)
			if err != nil {
				return err
			}
			if o.wait < 0 {
				return fmt.Errorf("-wait must not be negative: %v", o.wait)
			}
			return runCheck(cmd.Context(), at, o.wait, cmd.OutOrStdout())
		},
	}
	o.store.add(cmd)
	f := cmd.Flags()
	f.DurationVar(&o.wait, "wait", standstill, "how long to wait for projections that make no progress")
	f.SortFlags = false
	return cmd
}

func runCheck(ctx context.Context, at place, wait time.Duration, out io.Writer) error {
	d, err := at.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	runtime, err := millrace.New(millrace.Config{Store: d})
	if err != nil {
		return err
	}
	view := console.NewView(out)
	c := &checker{database: d, runtime: runtime, wait: wait, view: view}
	v, err := c.run(ctx)
	if err != nil {
		return err
	}
	lines := append([]string{fmt.Sprintf("%d events in %d streams", v.events, v.streams), ""}, v.lines()...)
	if err := view.Print(lines...); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return v.err()
}

// checker compares the read models as soon as all events are applied.
type checker struct {
	database database
	runtime  *millrace.Runtime
	wait     time.Duration
	view     *console.View
	shown    time.Time
}

// run repeats the comparison if events were appended meanwhile, because some figures might include them and others not.
func (c *checker) run(ctx context.Context) (checkResult, error) {
	for {
		before, err := c.caughtUp(ctx)
		if err != nil {
			return checkResult{}, err
		}
		v, err := check(ctx, c.database, before, new(fault))
		if err != nil {
			return v, err
		}
		after, err := c.runtime.Status(ctx, ofDemo)
		if err != nil {
			return v, err
		}
		if headOf(after) == headOf(before) {
			return v, nil
		}
		if err := c.progress(fmt.Sprintf("%d events so far; more are being appended", v.events)); err != nil {
			return v, err
		}
	}
}

// caughtUp waits until every projection has handled every event, and returns the status then.
func (c *checker) caughtUp(ctx context.Context) (status admin.Status, err error) {
	seen, movedAt := "", time.Now()
	err = poll(ctx, func() (bool, error) {
		status, err = c.runtime.Status(ctx, ofDemo)
		if err != nil {
			return false, err
		}
		behind, checkpoints := lagging(status)
		if behind == "" {
			return true, nil
		}
		if checkpoints != seen {
			seen, movedAt = checkpoints, time.Now()
		} else if time.Since(movedAt) >= c.wait {
			return false, fmt.Errorf("no progress for %v: %s; is a node running?", c.wait, behind)
		}
		return false, c.progress(fmt.Sprintf("waiting for the nodes, at most %.0f s without progress: %s",
			(c.wait - time.Since(movedAt)).Seconds(), behind))
	})
	return status, err
}

// progress prints what the check waits for.
func (c *checker) progress(line string) error {
	if time.Since(c.shown) < c.view.Every(progressEvery) {
		return nil
	}
	c.shown = time.Now()
	return c.view.Show(line)
}

// lagging returns the projections that are behind and the checkpoints of all, as text.
func lagging(status admin.Status) (behind, checkpoints string) {
	var late, at []string
	for _, m := range readModels {
		p := admin.ProjectionStatus{Behind: headOf(status)} // a projection that has never run is not in the status
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

// headOf returns the highest visible position.
func headOf(status admin.Status) (head int64) {
	for _, t := range status.Tenants {
		head = max(head, t.Head)
	}
	return head
}

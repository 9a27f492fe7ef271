package commandline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/internal/report"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

func (c projectionCommands) projectionsCommand() *cobra.Command {
	pause := c.eachProjection("pause", "paused", "Stop projections until they are resumed",
		`Stops projections with all their partitions, on whatever nodes they run, and returns when nothing of them runs any more. A
pause outlives restarts.`, (*admin.Admin).Pause)
	resume := c.eachProjection("resume", "resumed", "Start paused projections again",
		`Ends a pause. A projection that waits tries at once. A projection that stopped at an event tries that event again, and its
attempts are counted anew.`, (*admin.Admin).Resume)
	return group("projections", "Observe and change projections",
		c.listCommand(), c.statusCommand(), c.showCommand(), c.watchCommand(), pause, resume, c.repartitionCommand(),
		c.resetCommand(), c.rebuildCommand(), c.swapCommand(), c.dropVersionCommand(), c.waitCommand(),
		c.cancelCommand(), c.renameCommand(), c.forgetCommand(), c.createProjectionCommand())
}

// number returns an integer as text.
func number[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

// projectionsOf returns the status of all projections that a filter selects, page by page.
func projectionsOf(ctx context.Context, s store, filter admin.StatusFilter) (all []admin.ProjectionStatus, err error) {
	a, err := admin.New(s)
	if err != nil {
		return nil, err
	}
	filter.Limit = 1000
	for {
		status, err := a.Status(ctx, filter)
		if err != nil {
			return nil, err
		}
		all = append(all, status.Projections...)
		if len(status.Projections) < filter.Limit {
			return all, nil
		}
		filter.After = all[len(all)-1].ID
	}
}

// known returns an error that names the first tenant or projection that does not exist. With --all-tenants a projection
// must exist in one of them.
func (c *cli) known(ctx context.Context, s store, names []string) error {
	tenants := c.selected()
	if tenants != nil {
		found, err := tenantsOf(ctx, s, tenants)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("--tenant: %w %q", tenancy.ErrUnknown, tenants[0])
		}
	}
	for _, name := range names {
		status, err := projectionsOf(ctx, s, admin.StatusFilter{Tenants: tenants, Names: []string{name}})
		switch {
		case err != nil:
			return err
		case len(status) == 0 && tenants == nil:
			return fmt.Errorf("%w %q in any tenant", projection.ErrUnknownProjection, name)
		case len(status) == 0:
			return absent(ctx, s, full(tenants[0], name))
		}
	}
	return nil
}

// absent returns the error for a projection that does not exist. It is projection.ErrRetired with the reason if the
// projection was renamed, replaced or forgotten, and projection.ErrUnknownProjection otherwise.
func absent(ctx context.Context, s store, id millrace.ProjectionID) error {
	return withAdmin(s, func(a *admin.Admin) error {
		err := a.WaitFor(ctx, id, 0)
		switch {
		case err == nil: // WaitFor follows the name to the version that took its place
			return fmt.Errorf("%s: %w: a later version took its place, see projections list", report.Name(id),
				projection.ErrRetired)
		case errors.Is(err, projection.ErrRetired):
			return fmt.Errorf("%s: %w", report.Name(id), errors.Unwrap(err)) // without what WaitFor was doing
		}
		return fmt.Errorf("%w %q in tenant %q", projection.ErrUnknownProjection, id.Name, id.Tenant)
	})
}

// whole returns the IDs of projections, without their partitions.
func whole(list []admin.ProjectionStatus) (ids []millrace.ProjectionID) {
	for _, p := range list {
		ids = append(ids, full(p.ID.Tenant, p.ID.Name))
	}
	return slices.Compact(ids) // the list is sorted
}

// targets returns the projections of these names in the selected tenants.
func (c *cli) targets(ctx context.Context, s store, names []string) ([]millrace.ProjectionID, error) {
	if err := c.known(ctx, s, names); err != nil {
		return nil, err
	}
	list, err := projectionsOf(ctx, s, admin.StatusFilter{Tenants: c.selected(), Names: names})
	return whole(list), err
}

type projectionJSON struct {
	Tenant     string `json:"tenant"`
	Projection string `json:"projection"`
	Partitions int    `json:"partitions"`
	State      string `json:"state"`
}

type projectionsJSON struct {
	Projections []projectionJSON `json:"projections"`
}

func (c projectionCommands) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List projections",
		Example: "  millrace projections list\n  millrace projections list --all-tenants --json",
		Args:    cobra.NoArgs,
		RunE: c.with(func(ctx context.Context, s store, _ []string) error {
			if err := c.known(ctx, s, nil); err != nil {
				return err
			}
			list, err := projectionsOf(ctx, s, admin.StatusFilter{Tenants: c.selected()})
			if err != nil {
				return err
			}
			all := projectionsJSON{Projections: []projectionJSON{}}
			table := console.Table{
				Columns: []console.Column{
					{Title: "projection", Least: 12}, {Title: "partitions", Right: true}, {Title: "state"},
				},
			}
			for _, id := range whole(list) {
				parts := partitionsOf(list, id)
				p := projectionJSON{
					id.Tenant, id.Name, len(parts), report.State(admin.Status{Projections: parts}.Projection(id)),
				}
				all.Projections = append(all.Projections, p)
				table.Add(report.Name(id), number(p.Partitions), p.State)
			}
			return c.print(all,
				func() error { return c.table(table, "no projections: nodes create those that they register") })
		}),
	}
}

func partitionsOf(list []admin.ProjectionStatus, id millrace.ProjectionID) (parts []admin.ProjectionStatus) {
	for _, p := range list {
		if full(p.ID.Tenant, p.ID.Name) == id {
			parts = append(parts, p)
		}
	}
	return parts
}

func (c projectionCommands) statusCommand() *cobra.Command {
	filter := admin.StatusFilter{}
	cmd := &cobra.Command{
		Use:   "status [PROJECTION...]",
		Short: "Show the state and the progress of projections",
		Long: `Shows the state and the progress of projections, each partition separately, with its faults, and the nodes.
With --sort, the projections that are the furthest behind come first: by positions (behind), or by the age of the oldest event that they
have not handled (lag). With --json it prints the Status of the library. Its field next is the --next of the next page.`,
		Example: "  millrace projections status\n  millrace projections status totals --tenant acme\n  millrace projections status --all-tenants --json\n" +
			"  millrace projections status --all-tenants --sort lag --limit 20",
		ValidArgsFunction: c.completeProjections,
		RunE: c.with(func(ctx context.Context, s store, names []string) error {
			if err := c.known(ctx, s, names); err != nil {
				return err
			}
			selected := filter
			selected.Names = names
			snapshot := c.snapshot(ctx, s, selected)
			if snapshot.Err != nil {
				return snapshot.Err
			}
			return c.print(snapshot.Status, func() error {
				if err := report.Print(c.out, snapshot); err != nil || snapshot.Status.Next == "" {
					return err
				}
				return c.say("the next page: --next %s", snapshot.Status.Next)
			})
		}),
	}
	cmd.Flags().StringVar((*string)(&filter.Sort), "sort", "",
		"order: behind or lag, the worst first (default by tenant and name)")
	cmd.Flags().IntVar(&filter.Limit, "limit", 10_000, "how many projections are shown at most, up to 10000")
	cmd.Flags().StringVar(&filter.Next, "next", "", "where the page begins: the end of the previous page")
	return cmd
}

// snapshot reads what people see of the projections that a filter selects in the selected tenants.
func (c projectionCommands) snapshot(ctx context.Context, s store,
	filter admin.StatusFilter) (snapshot report.Snapshot) {
	snapshot.At = time.Now()
	filter.Tenants = c.selected()
	snapshot.Err = withAdmin(s, func(a *admin.Admin) (err error) {
		snapshot.Status, err = a.Status(ctx, filter)
		if err != nil {
			return err
		}
		snapshot.Summary, err = a.Summary(ctx)
		return err
	})
	return snapshot
}

func (c projectionCommands) watchCommand() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "watch [PROJECTION...]",
		Short: "Show the state of projections continuously",
		Long: `Shows the state of projections on the whole terminal until it is interrupted. If not all fit, it shows the worst. Without a
terminal it prints one status after another; with --json, one status per line. NO_COLOR turns colours off.`,
		Example:           "  millrace projections watch\n  millrace projections watch --all-tenants --interval 5s",
		ValidArgsFunction: c.completeProjections,
		RunE: c.with(func(ctx context.Context, s store, names []string) error {
			if every < 10*time.Millisecond {
				return misuse("--interval must be at least 10ms: %v", every)
			}
			if err := c.known(ctx, s, names); err != nil {
				return err
			}
			read := func(ctx context.Context) report.Snapshot {
				return c.snapshot(ctx, s, admin.StatusFilter{Names: names, Limit: 10_000})
			}
			if c.json {
				return c.watchJSON(ctx, every, read)
			}
			return report.Watch(ctx, c.out, every, read)
		}),
	}
	cmd.Flags().DurationVar(&every, "interval", time.Second, "time between two looks at the store")
	return cmd
}

func (c projectionCommands) watchJSON(ctx context.Context, every time.Duration,
	read func(ctx context.Context) report.Snapshot) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		switch snapshot := read(ctx); {
		case ctx.Err() != nil:
			return nil
		case snapshot.Err != nil:
			fmt.Fprintf(c.errs, "millrace: %s\n", console.OneLine(snapshot.Err.Error()))
		default:
			if err := c.printJSON(snapshot.Status); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// mostAtOnce is how many projections are changed at the same time.
const mostAtOnce = 3

// eachProjection returns a command that does one thing to each of the projections that its arguments name, in the
// selected tenants.
func (c *cli) eachProjection(verb, past, short, long string,
	do func(a *admin.Admin, ctx context.Context, id millrace.ProjectionID) error) *cobra.Command {
	return &cobra.Command{
		Use: verb + " PROJECTION...", Short: short, Long: long,
		Example: "  millrace projections " + verb + " totals\n  millrace projections " + verb +
			" totals --all-tenants",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: c.completeProjections,
		RunE: c.with(func(ctx context.Context, s store, names []string) error {
			ids, err := c.targets(ctx, s, names)
			if err != nil {
				return err
			}
			return c.each(s, past, ids, func(a *admin.Admin, id millrace.ProjectionID) error { return do(a, ctx, id) })
		}),
	}
}

// each does one thing to projections, several at once. It continues after an error, and names those that failed.
func (c *cli) each(s store, past string, ids []millrace.ProjectionID,
	do func(a *admin.Admin, id millrace.ProjectionID) error) error {
	a, err := admin.New(s)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(mostAtOnce)
	errs := make([]error, len(ids))
	var ended atomic.Int64
	stop := c.progress().followCount(&ended, len(ids))
	for i, id := range ids {
		group.Go(func() error {
			errs[i] = do(a, id)
			ended.Add(1)
			return nil
		})
	}
	_ = group.Wait()
	stop()
	var changed []string
	var failures []error
	for i, id := range ids {
		if errs[i] == nil {
			changed = append(changed, c.name(id))
		} else {
			failures = append(failures, fmt.Errorf("%s: %w", report.Name(id), errs[i]))
		}
	}
	return c.reportPartial(past, changed, joined(failures))
}

// name is the name of a projection in the output.
func (c *cli) name(id millrace.ProjectionID) string {
	if c.json {
		return id.String()
	}
	return report.Name(id)
}

func (c projectionCommands) repartitionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "repartition PROJECTION PARTITIONS",
		Short: "Change the number of partitions of a projection",
		Long: `Changes the number of partitions of a projection while it runs. Checkpoints, dead letters and pauses go to the partitions of
their streams. Batches in progress are done again.`,
		Example:           "  millrace projections repartition totals 8",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: c.completeProjections,
		RunE: c.with(func(ctx context.Context, s store, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 1 || n > 1024 {
				return misuse("the number of partitions must be from 1 to 1024: %q", args[1])
			}
			ids, err := c.targets(ctx, s, args[:1])
			if err != nil {
				return err
			}
			return c.each(s, "repartitioned", ids,
				func(a *admin.Admin, id millrace.ProjectionID) error { return a.Repartition(ctx, id, n) })
		}),
	}
}

// allProjections selects the projections of all tenants.
var allProjections = admin.StatusFilter{}

package commandline

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/projection"
)

func (c projectionCommands) swapCommand() *cobra.Command {
	var sure yes
	var opts admin.SwapOptions
	cmd := &cobra.Command{
		Use:   "swap PROJECTION@VERSION",
		Short: "Replace the earlier version of a projection by a new version",
		Long: `Replaces the earlier version of a projection when the new version has handled all events that the earlier one has handled. One
transaction runs its hook Projection.Swap and stops the earlier version. A node that registers the new version carries this out;
the command waits for it. With --all-tenants it swaps in all tenants in which the earlier version is still used.`,
		Example: "  millrace projections swap totals@2\n  millrace projections swap totals@2 --all-tenants --yes",
		Args:    cobra.ExactArgs(1),
		RunE: c.with(func(ctx context.Context, s store, names []string) error {
			if err := laterVersion(names[0]); err != nil {
				return err
			}
			ids, err := c.unswapped(ctx, s, names)
			if err != nil {
				return err
			}
			err = c.confirm(sure,
				"let %s take the place of the earlier version in %s: its checkpoint and dead letters are deleted",
				names[0], plural(len(ids), "tenant"))
			if err != nil {
				return err
			}
			return c.each(s, "swapped", ids, func(a *admin.Admin,
				id millrace.ProjectionID) error {
				return pending(a.Swap(ctx, id, opts))
			})
		}),
		ValidArgsFunction: c.completeProjections,
	}
	sure.add(cmd)
	cmd.Flags().DurationVar(&opts.CatchUp, "catch-up", 30*time.Second,
		"how long to wait until the version has caught up")
	cmd.Flags().BoolVar(&opts.AllowParked, "allow-parked", false, "also if events of the version are parked")
	return cmd
}

// laterVersion returns an error unless a name has a version from 2 on.
func laterVersion(name string) error {
	if base, version := (millrace.ProjectionID{Name: name}).Version(); version < 2 {
		return misuse("the argument must name a version from 2 on, such as %s: %q", projection.VersionName(base, 2),
			name)
	}
	return nil
}

// unswapped returns the versions to swap: that of the tenant, or with --all-tenants those whose earlier version is
// still used.
func (c projectionCommands) unswapped(ctx context.Context, s store, names []string) (ids []millrace.ProjectionID,
	err error) {
	if !c.allTenants {
		return c.targets(ctx, s, names)
	}
	err = withAdmin(s, func(a *admin.Admin) (err error) {
		ids, err = a.Unswapped(ctx, names[0])
		return err
	})
	return ids, err
}

func (c projectionCommands) dropVersionCommand() *cobra.Command {
	var sure yes
	cmd := &cobra.Command{
		Use:   "drop-version PROJECTION@VERSION",
		Short: "Remove a version of a projection that was not swapped in",
		Long: `Removes a version of a projection that has not replaced the earlier one. One transaction runs its hook Projection.Drop and
deletes its checkpoints and dead letters. The earlier version is not affected. The next attempt needs another version.`,
		Example: "  millrace projections drop-version totals@2\n  millrace projections drop-version totals@2 --all-tenants --yes",
		Args:    cobra.ExactArgs(1),
		RunE: c.with(func(ctx context.Context, s store, names []string) error {
			if err := laterVersion(names[0]); err != nil {
				return err
			}
			ids, err := c.targets(ctx, s, names)
			if err != nil {
				return err
			}
			err = c.confirm(sure, "drop the version %s, with its read model, in %s", names[0],
				plural(len(ids), "tenant"))
			if err != nil {
				return err
			}
			return c.each(s, "dropped", ids, func(a *admin.Admin,
				id millrace.ProjectionID) error {
				return pending(a.DropVersion(ctx, id))
			})
		}),
		ValidArgsFunction: c.completeProjections,
	}
	sure.add(cmd)
	return cmd
}

package commandline

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/report"
	"github.com/millrace-go/millrace/projection"
)

func (c projectionCommands) renameCommand() *cobra.Command {
	var sure yes
	cmd := &cobra.Command{
		Use:   "rename PROJECTION NAME",
		Short: "Give a projection another name",
		Long: `Gives a projection another name, in one transaction. It keeps its checkpoints, dead letters and pauses. The old name is
retired: nodes that register it run nothing under that name. Deploy code with the new name before or after.`,
		Example: "  millrace projections rename totals order-totals\n  millrace projections rename totals order-totals --all-tenants --yes",
		Args:    cobra.ExactArgs(2),
		RunE: c.with(func(ctx context.Context, s store, args []string) error {
			if err := newName(args[0], args[1]); err != nil {
				return err
			}
			ids, err := c.allVersions(ctx, s, args[0])
			if err != nil {
				return err
			}
			err = c.confirm(sure, "rename %s to %s in %s: nodes that register only the old name run it no more",
				args[0], args[1], plural(len(ids), "tenant"))
			if err != nil {
				return err
			}
			return c.each(s, "renamed", ids, func(a *admin.Admin,
				id millrace.ProjectionID) error {
				return a.Rename(ctx, id, args[1])
			})
		}),
		ValidArgsFunction: c.completeProjections,
	}
	sure.add(cmd)
	return cmd
}

// newName returns an error if a projection cannot be renamed between these names.
func newName(from, to string) error {
	for _, name := range []string{from, to} {
		if base, version := (millrace.ProjectionID{Name: name}).Version(); version > 1 {
			return misuse("all versions are renamed together: name %q without its version: %q", base, name)
		}
	}
	if to == "" || to == from {
		return misuse("the new name must not be empty, and must differ from the old one: %q", to)
	}
	return nil
}

// allVersions returns the projections of a name, each once whatever versions there are.
func (c projectionCommands) allVersions(ctx context.Context, s store, name string) (ids []millrace.ProjectionID,
	err error) {
	list, err := projectionsOf(ctx, s, admin.StatusFilter{Tenants: c.selected()})
	if err != nil {
		return nil, err
	}
	for _, id := range whole(list) {
		id.Name, _ = id.Version()
		if id.Name == name {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil, c.known(ctx, s, []string{name})
	}
	return slices.Compact(ids), nil
}

func (c projectionCommands) forgetCommand() *cobra.Command {
	var sure yes
	cmd := &cobra.Command{
		Use:   "forget PROJECTION...",
		Short: "Remove projections that no node registers any more",
		Long: `Removes projections that no living node registers: their checkpoints, dead letters and commands. The read models do not
change. The names are retired, so that a node of an older release does not begin again at the first event.`,
		Example: "  millrace projections forget totals\n  millrace projections forget totals --all-tenants --yes",
		Args:    cobra.MinimumNArgs(1),
		RunE: c.with(func(ctx context.Context, s store, names []string) error {
			ids, err := c.targets(ctx, s, names)
			if err != nil {
				return err
			}
			parked, err := c.parked(ctx, s, ids)
			if err != nil {
				return err
			}
			err = c.confirm(sure, "remove %s permanently, with %s: %s", plural(len(ids), "projection"),
				plural(parked, "parked event"), c.listed(ids))
			if err != nil {
				return err
			}
			return c.each(s, "forgot", ids, func(a *admin.Admin,
				id millrace.ProjectionID) error {
				return a.Forget(ctx, id)
			})
		}),
		ValidArgsFunction: c.completeProjections,
	}
	sure.add(cmd)
	return cmd
}

// parked counts the parked events of projections.
func (c projectionCommands) parked(ctx context.Context, s store, ids []millrace.ProjectionID) (total int64, err error) {
	for _, id := range ids {
		n, err := s.DeadLetters(id).Count(ctx, projection.DeadLetterFilter{})
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// listed lists some of the projections.
func (c projectionCommands) listed(ids []millrace.ProjectionID) string {
	const most = 10
	text := ""
	for i, id := range ids {
		if i == most {
			return text + " and " + plural(len(ids)-most, "other")
		}
		if i > 0 {
			text += ", "
		}
		text += report.Name(id)
	}
	return text
}

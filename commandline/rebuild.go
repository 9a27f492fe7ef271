package commandline

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/projection"
)

// redeliverFlag adds the flag for projections that deliver.
func redeliverFlag(cmd *cobra.Command, redeliver *bool) {
	cmd.Flags().BoolVar(redeliver, "redeliver", false,
		"also of projections that deliver, for instance mails: they deliver everything again, with the same tokens")
}

func (c projectionCommands) rebuildCommand() *cobra.Command {
	var sure yes
	var redeliver bool
	cmd := &cobra.Command{
		Use:   "rebuild PROJECTION...",
		Short: "Empty the read models of projections, and apply all events again",
		Long: `Lets projections begin again in their tables. When a projection stands still on all nodes, one transaction runs its hook
Projection.Reset, which empties the read model, and sets its checkpoint to 0. Its dead letters are resolved. A node that registers
the projection carries this out; the command waits for it. Then the projection continues from the first event: projections watch
shows its progress.`,
		Example: "  millrace projections rebuild totals\n  millrace projections rebuild totals --all-tenants --yes",
		Args:    cobra.MinimumNArgs(1),
		RunE: c.with(func(ctx context.Context, s store, names []string) error {
			ids, err := c.targets(ctx, s, names)
			if err != nil {
				return err
			}
			err = c.confirm(sure, "empty the read models of %s, and apply all events again: %s",
				plural(len(ids), "projection"), c.listed(ids))
			if err != nil {
				return err
			}
			return c.each(s, "rebuilding", ids, func(a *admin.Admin, id millrace.ProjectionID) error {
				return pending(a.Rebuild(ctx, id, admin.ResetOptions{Redeliver: redeliver}))
			})
		}),
		ValidArgsFunction: c.completeProjections,
	}
	sure.add(cmd)
	redeliverFlag(cmd, &redeliver)
	return cmd
}

// pending adds what to do about an operation that has not ended.
func pending(err error) error {
	if errors.Is(err, projection.ErrOperationPending) {
		return fmt.Errorf("%w: a node that registers the projection will do so; see millrace projections wait and cancel", err)
	}
	return err
}

func (c projectionCommands) waitCommand() *cobra.Command {
	return c.eachProjection("wait", "completed the operation of",
		"Wait for the end of open operations, such as rebuilds",
		"Waits until the open operations of projections have ended, and returns their errors.",
		func(a *admin.Admin, ctx context.Context, id millrace.ProjectionID) error {
			return pending(a.WaitOperation(ctx, id))
		})
}

func (c projectionCommands) cancelCommand() *cobra.Command {
	return c.eachProjection("cancel", "cancelled the operation of",
		"Cancel open operations, such as rebuilds that have not happened yet",
		"Cancels the open operations of projections. They have no effect then, and the projections run again.",
		(*admin.Admin).CancelOperation)
}

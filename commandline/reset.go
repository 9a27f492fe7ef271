package commandline

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/report"
)

type resetsJSON struct {
	Results []resetJSON `json:"results"`
}

type resetJSON struct {
	Tenant     string `json:"tenant"`
	Projection string `json:"projection"`
	// From is the checkpoint before, Position the one now.
	From     int64 `json:"from"`
	Position int64 `json:"position"`
	// Resolved is how many dead letters were resolved, because their events are passed again.
	Resolved int64 `json:"resolved"`
}

func (c projectionCommands) resetCommand() *cobra.Command {
	var sure yes
	var redeliver bool
	cmd := &cobra.Command{
		Use:   "reset PROJECTION POSITION",
		Short: "Set the checkpoint of a projection to a position",
		Long: `Sets the checkpoint of a projection, with all its partitions, to a position, back or forward. It continues with the event after
it. Nothing of the read model is deleted: events after the new position are applied again, and events that are skipped are never
applied. To begin again with an empty read model, use projections rebuild.`,
		Example: "  millrace projections reset totals 120000\n  millrace projections reset totals 0 --yes",
		Args:    cobra.ExactArgs(2),
		RunE: c.with(func(ctx context.Context, s store, args []string) error {
			position, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil || position < 0 {
				return misuse("the position must be a number from 0: %q", args[1])
			}
			tenant, err := c.oneTenant() // positions of tenants have nothing to do with each other
			if err != nil {
				return err
			}
			if err := c.known(ctx, s, args[:1]); err != nil {
				return err
			}
			return c.reset(ctx, s, sure, full(tenant, args[0]), position, admin.ResetOptions{Redeliver: redeliver})
		}),
		ValidArgsFunction: c.completeProjections,
	}
	sure.add(cmd)
	redeliverFlag(cmd, &redeliver)
	return cmd
}

func (c projectionCommands) reset(ctx context.Context, s store, sure yes, id millrace.ProjectionID, position int64,
	opts admin.ResetOptions) error {
	list, err := projectionsOf(ctx, s, admin.StatusFilter{Tenants: []string{id.Tenant}, Names: []string{id.Name}})
	if err != nil {
		return err
	}
	at := admin.Status{Projections: list}.Projection(id).Checkpoint
	effect := fmt.Sprintf("the events after %d are applied again", position)
	if position > at {
		effect = fmt.Sprintf("the events from %d to %d are never applied", at+1, position)
	}
	if err := c.confirm(sure, "set the checkpoint of %s from %d to %d: %s", report.Name(id), at, position,
		effect); err != nil {
		return err
	}
	a, err := admin.New(s)
	if err != nil {
		return err
	}
	r, err := a.Reset(ctx, id, position, opts)
	if err != nil {
		return err
	}
	all := resetsJSON{Results: []resetJSON{{id.Tenant, id.Name, r.From, r.Position, r.Resolved}}}
	return c.print(all, func() error {
		text := fmt.Sprintf("reset %s from %d to %d", report.Name(id), r.From, r.Position)
		if r.Resolved > 0 {
			text += fmt.Sprintf("; %s resolved", plural(r.Resolved, "dead letter"))
		}
		return c.say("%s", text)
	})
}

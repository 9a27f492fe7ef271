package commandline

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/projection"
)

func (c projectionCommands) createProjectionCommand() *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "create PROJECTION...",
		Short: "Create projections under names that were forgotten, renamed or replaced",
		Long: `Creates projections in a tenant; --from selects where they begin. Use it for a name that was forgotten, renamed or replaced.
Nodes create all other projections that they register. The tables of the handler do not change.`,
		Example: `  millrace projections create totals
  millrace projections create mails --from end
  millrace projections create totals --from 2026-01-31T00:00:00Z`,
		Args: cobra.MinimumNArgs(1),
		RunE: c.with(func(ctx context.Context, s store, names []string) error {
			start, err := startOf(from)
			if err != nil {
				return err
			}
			if slices.Contains(names, "") {
				return misuse("the name of a projection must not be empty")
			}
			tenant, err := c.oneTenant() // projections are created in one tenant at a time
			if err != nil {
				return err
			}
			if err := c.known(ctx, s, nil); err != nil {
				return err
			}
			var ids []millrace.ProjectionID
			for _, name := range names {
				ids = append(ids, full(tenant, name))
			}
			return c.each(s, "created", ids, func(a *admin.Admin,
				id millrace.ProjectionID) error {
				return a.Create(ctx, id, start)
			})
		}),
	}
	cmd.Flags().StringVar(&from, "from", "beginning",
		"where to begin: beginning, end (only events that come later), a position, or a time such as 2026-01-31T00:00:00Z")
	completeFlag(cmd, "from", oneOf("beginning", "end"))
	return cmd
}

// startOf parses the flag --from.
func startOf(from string) (start projection.Start, err error) {
	switch from {
	case "beginning":
		return start, nil
	case "end":
		return projection.Start{End: true}, nil
	}
	start.Position, err = strconv.ParseInt(from, 10, 64)
	if err == nil && start.Position > 0 {
		return start, nil
	}
	at, err := time.Parse(time.RFC3339, from)
	if err != nil {
		return start,
			misuse("--from must be beginning, end, a position from 1, or a time such as 2026-01-31T00:00:00Z: %q", from)
	}
	return projection.Start{Time: at}, nil
}

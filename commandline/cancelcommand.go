package commandline

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"
)

// cancelReplayCommand cancels a replay or a discard.
func (c letterCommands) cancelReplayCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel PROJECTION COMMAND",
		Short: "Cancel a replay or a discard that has not ended",
		Long: `Cancels a replay or a discard that waits for a node, or that has not ended. A replay that was interrupted or that exceeded
--timeout prints its number. What it has done stays, and the other events stay parked.`,
		Example: "  millrace dead-letters cancel totals 7",
		Args:    cobra.ExactArgs(2),
		RunE: c.with(func(ctx context.Context, s store, args []string) error {
			command, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil || command < 1 {
				return misuse("the number of a command is from 1: %q", args[1])
			}
			tenant, err := c.oneTenant()
			if err != nil {
				return err
			}
			if err := c.known(ctx, s, args[:1]); err != nil {
				return err
			}
			if err := s.DeadLetters(full(tenant, args[0])).Cancel(ctx, command); err != nil {
				return err
			}
			return c.changed("cancelled the command of", []string{c.name(full(tenant, args[0]))})
		}),
	}
}

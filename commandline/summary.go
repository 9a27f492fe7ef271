package commandline

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/report"
)

func (c storeCommands) summaryCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "summary",
		Short: "Show what the whole deployment does, and did in the last hour",
		Long: `Shows how many projections are in each state, which are the furthest behind, and how many events were handled in the last hour, in
all tenants. With --json it prints the Summary of the library, which has the nodes and each minute of the hour.`,
		Example: "  millrace summary\n  millrace summary --json | jq '.hour[] | {at, applied, lag}'",
		Args:    cobra.NoArgs,
		RunE: c.withSummary(func(summary admin.Summary) error {
			return c.print(summary, func() error { return c.printSummary(summary) })
		}),
	}
}

// withSummary calls fn with the summary of all tenants.
func (c storeCommands) withSummary(fn func(summary admin.Summary) error) func(*cobra.Command, []string) error {
	return c.with(func(ctx context.Context, s store, _ []string) error {
		if err := c.noTenants(); err != nil {
			return err
		}
		a, err := admin.New(s)
		if err != nil {
			return err
		}
		summary, err := a.Summary(ctx)
		if err != nil {
			return err
		}
		return fn(summary)
	})
}

func (c storeCommands) printSummary(s admin.Summary) error {
	lines := []string{
		fmt.Sprintf("nodes: %d; parked events: %d; projections: %s", len(s.Nodes), s.Parked, report.States(s.States)),
	}
	for _, p := range s.Lagging {
		lines = append(lines, fmt.Sprintf("%s, %s, behind by %d", report.Name(p.ID), p.State, p.Behind))
	}
	for _, line := range lines {
		if err := c.say("%s", line); err != nil {
			return err
		}
	}
	return c.table(minutesTable(s.Hour), "no events were handled in the last hour, as far as nodes report it")
}

package commandline

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
)

func (c projectionCommands) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show PROJECTION",
		Short: "Show all that is known of one projection",
		Long: `Shows the state of one projection, which nodes ran it, its last batches, and its last hour. Nodes publish a part of what they know: the
last tenures, the batches of the projections that are the furthest behind, and the hour of those with the longest lags. With --json it
prints the Detail of the library.`,
		Example:           "  millrace projections show totals\n  millrace projections show totals --tenant acme --json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeProjections,
		RunE: c.with(func(ctx context.Context, s store, args []string) error {
			tenant, err := c.oneTenant()
			if err != nil {
				return err
			}
			if err := c.known(ctx, s, args); err != nil {
				return err
			}
			a, err := admin.New(s)
			if err != nil {
				return err
			}
			d, err := a.Detail(ctx, full(tenant, args[0]))
			if err != nil {
				return err
			}
			return c.print(d, func() error { return c.printDetail(d) })
		}),
	}
}

func (c projectionCommands) printDetail(d admin.Detail) error {
	p := d.Status
	line := fmt.Sprintf("%s, position %d of %d, parked %d", p.State, p.Position, p.Head, p.Parked)
	if p.Reason != "" {
		line += ": " + p.Reason
	}
	if err := c.say("%s", line); err != nil {
		return err
	}
	tenures := console.Table{
		Columns: []console.Column{
			{Title: "node"}, {Title: "partition", Right: true}, {Title: "epoch", Right: true}, {Title: "began"},
			{Title: "ended"},
		},
	}
	for _, t := range d.Tenures {
		tenures.Add(cmp.Or(t.NodeName, t.Node), number(t.Partition), number(t.Epoch), moment(t.Began), moment(t.Ended))
	}
	if err := c.table(tenures, "no node is known that ran it"); err != nil {
		return err
	}
	batches := console.Table{
		Columns: []console.Column{
			{Title: "batch ended"}, {Title: "partition", Right: true}, {Title: "events", Right: true},
			{Title: "duration", Right: true}, {Title: "fault"},
		},
	}
	for _, b := range d.Batches {
		batches.Add(moment(b.Ended), number(b.Partition), number(b.Events), b.Duration.Round(time.Millisecond).String(),
			b.Fault)
	}
	if err := c.table(batches,
		"no batch is known: only those of the projections that are the furthest behind are published"); err != nil {
		return err
	}
	if len(d.Minutes) == 0 {
		return nil
	}
	return c.table(minutesTable(d.Minutes), "")
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(time.DateTime)
}

func minutesTable(minutes []admin.Minute) console.Table {
	table := console.Table{
		Columns: []console.Column{
			{Title: "minute"}, {Title: "events", Right: true}, {Title: "behind", Right: true},
			{Title: "lag", Right: true},
		},
	}
	for _, m := range minutes {
		table.Add(m.At.Format(time.TimeOnly), number(m.Applied), number(m.Behind), m.Lag.String())
	}
	return table
}

package commandline

import (
	"cmp"
	"context"
	"math"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/event"
)

func (c eventCommands) tailCommand() *cobra.Command {
	var o selection
	var last int
	var follow bool
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print the last events, and follow new ones",
		Long: `Prints the last events of a tenant. With --follow it continues with new events until it is interrupted, and ends with an
error if events that it has shown may be gone: after a failover, or if the tenant is restored. It shows events when they are settled, in
order, and leaves none out. An event that cannot be read is shown with the reason, and then the status at
the end is 1.`,
		Example: "  millrace events tail\n  millrace events tail -f -n 0 --type OrderPlaced --json",
		Args:    cobra.NoArgs,
		RunE: c.with(func(ctx context.Context, s store, _ []string) error {
			if last < 0 {
				return misuse("-n must not be negative: %d", last)
			}
			if err := o.check(); err != nil {
				return err
			}
			tenant, of, err := c.eventsOf(ctx, s)
			if err != nil {
				return err
			}
			t := follower{eventPrinter: eventPrinter{cli: c.cli}, tenant: tenant, of: of, o: o}
			t.shown, err = of.Settled(ctx)
			if err != nil {
				return err
			}
			if o.After > t.shown {
				return misuse("--after %d is after the last event, at position %d", o.After, t.shown)
			}
			err = t.printLast(ctx, last)
			if err == nil && follow {
				err = t.follow(ctx)
				if ctx.Err() != nil && c.timeout <= 0 {
					err = nil // interrupted
				}
			}
			return cmp.Or(err, t.incomplete(tenant))
		}),
	}
	o.add(cmd)
	c.addStored(cmd)
	cmd.Flags().IntVarP(&last, "lines", "n", 10, "how many of the last events to print; each part of a split event counts")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue with new events")
	return cmd
}

// follower prints the end of a tenant's events.
type follower struct {
	eventPrinter
	tenant string
	of     events
	o      selection
	// shown is the position up to which the last events were printed.
	shown int64
}

// printLast prints the last n events up to the position shown. It reads from ever further back, since positions have
// gaps and other events lie between.
func (f *follower) printLast(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	for span := int64(n) * 2; ; span *= 8 {
		o := f.o.ReadOptions
		o.After = max(f.shown-span, f.o.After)
		var found []event.Envelope
		for e, err := range upTo(f.shown, f.of.ReadAll(ctx, o)) {
			if err != nil {
				return err
			}
			found = append(found, e)
			if len(found) > 2*n {
				found = append(found[:0], found[len(found)-n:]...)
			}
		}
		if len(found) < n && o.After > f.o.After {
			continue
		}
		for _, e := range found[max(0, len(found)-n):] {
			if err := f.print(f.tenant, e); err != nil {
				return err
			}
		}
		return nil
	}
}

// follow prints new events until ctx ends.
func (f *follower) follow(ctx context.Context) error {
	o := f.o.ReadOptions
	o.After = max(f.shown, f.o.After)
	for e, err := range upTo(math.MaxInt64, f.of.Follow(ctx, o)) {
		if err != nil {
			return err
		}
		if err := f.print(f.tenant, e); err != nil {
			return err
		}
	}
	return nil
}

package commandline

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/console"
)

const whatErasureDoes = `Their positions, versions, types and times stay. It pauses the tenant, waits until no projection of it runs, and resumes it. It
names the projections that had passed the events: rebuild these, or delete from their read models. PostgreSQL needs the role that owns
the schemas.`

func (c eventCommands) eraseCommand() *cobra.Command {
	return c.redacting("erase STREAM", "Remove what is in the events of a stream permanently",
		"Removes the bodies and headers of all events of a stream, such as those of a person, its aliases and its idempotency keys.\n"+whatErasureDoes,
		`  millrace events erase customer-17 --reason "request 4711"`,
		cobra.ExactArgs(1),
		func(args []string) (string, error) { return "the events of stream " + strconv.Quote(args[0]), nil },
		func(ctx context.Context, of events, args []string, reason string) (event.Erasure, error) {
			return of.EraseStream(ctx, args[0], reason)
		})
}

func (c eventCommands) redactCommand() *cobra.Command {
	return c.redacting("redact POSITION...", "Remove what is in some events permanently",
		"Removes the bodies and headers of the events at some positions, and the idempotency keys of their appends.\n"+
			whatErasureDoes,
		`  millrace events redact 4711 4713 --reason "a password in a comment"`,
		cobra.MinimumNArgs(1),
		func(args []string) (string, error) {
			positions, err := positionsOf(args)
			return plural(len(positions), "event"), err
		},
		func(ctx context.Context, of events, args []string, reason string) (event.Erasure, error) {
			positions, err := positionsOf(args)
			if err != nil {
				return event.Erasure{}, err
			}
			return of.RedactEvents(ctx, positions, reason)
		})
}

func positionsOf(args []string) (positions []int64, err error) {
	for _, arg := range args {
		position, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || position < 1 {
			return nil, misuse("a position must be a number from 1: %q", arg)
		}
		positions = append(positions, position)
	}
	return positions, nil
}

// redacting returns a command that redacts what its arguments select. what describes that.
func (c eventCommands) redacting(use, short, long, example string, count cobra.PositionalArgs,
	what func(args []string) (string, error),
	do func(ctx context.Context, of events, args []string, reason string) (event.Erasure, error),
) *cobra.Command {
	var sure yes
	var reason string
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: example, Args: count,
		RunE: c.with(func(ctx context.Context, s store, args []string) error {
			selected, err := what(args)
			if err != nil {
				return err
			}
			if reason == "" {
				return misuse("--reason is missing: it is kept with the record of the erasure")
			}
			tenant, of, err := c.eventsOf(ctx, s)
			if err != nil {
				return err
			}
			if err := c.confirm(sure, "remove what is in %s of tenant %q permanently", selected, tenant); err != nil {
				return err
			}
			erased, err := do(ctx, of, args, reason)
			if err != nil {
				return err
			}
			return c.print(erased, func() error { return c.sayErased(erased) })
		})}
	sure.add(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record of erasures")
	return cmd
}

func (c eventCommands) sayErased(e event.Erasure) error {
	if err := c.say("redacted %s", plural(int(e.Events), "event")); err != nil {
		return err
	}
	if len(e.Applied)+len(e.Delivered) > 0 {
		if err := c.say("their types: %s", strings.Join(e.Types, ", ")); err != nil {
			return err
		}
	}
	for _, name := range e.Applied {
		if err := c.say("%s had passed them: if it handles these types, rebuild it, or delete from its read model",
			name); err != nil {
			return err
		}
	}
	for _, name := range e.Delivered {
		if err := c.say("%s had passed them: if it handles these types, it has delivered them", name); err != nil {
			return err
		}
	}
	return nil
}

type erasuresJSON struct {
	Tenant   string          `json:"tenant"`
	Erasures []event.Erasure `json:"erasures"`
}

func (c eventCommands) erasuresCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "erasures",
		Short:   "List what was redacted",
		Long:    "Lists the erasures of a tenant, the oldest first. One without an end is in progress, or its process died: it has redacted nothing.",
		Example: "  millrace events erasures --tenant acme",
		Args:    cobra.NoArgs,
		RunE: c.with(func(ctx context.Context, s store, _ []string) error {
			tenant, of, err := c.eventsOf(ctx, s)
			if err != nil {
				return err
			}
			all, err := of.Erasures(ctx)
			if err != nil {
				return err
			}
			table := console.Table{Columns: []console.Column{{Title: "number", Right: true}, {Title: "ended"},
				{Title: "events", Right: true},
				{Title: "selected", Least: 12}, {Title: "reason", Least: 12}}}
			for _, e := range all {
				ended, selected := "-", "stream "+e.Stream
				if !e.EndedAt.IsZero() {
					ended = e.EndedAt.UTC().Format(time.DateTime)
				}
				if e.Stream == "" {
					selected = plural(len(e.Positions), "position")
				}
				table.Add(number(e.ID), ended, number(e.Events), selected, e.Reason)
			}
			return c.print(erasuresJSON{tenant, append([]event.Erasure{}, all...)},
				func() error { return c.table(table, "no erasures") })
		}),
	}
}

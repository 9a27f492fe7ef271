package commandline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
)

func (c eventCommands) eventsCommand() *cobra.Command {
	return group("events", "Read, append, import, export and redact events",
		c.tailCommand(), c.streamCommand(), c.appendCommand(), c.importCommand(), c.exportCommand(),
		c.countEventsCommand(),
		c.eraseCommand(), c.redactCommand(), c.erasuresCommand())
}

// eventsOf returns the tenant's events. The tenant must exist.
func (c eventCommands) eventsOf(ctx context.Context, s store) (tenant string, of events, err error) {
	tenant, err = c.oneTenant()
	if err != nil {
		return "", nil, err
	}
	of, err = s.of(tenant)
	if err != nil {
		return "", nil, misuseError{fmt.Errorf("--tenant: %w", err)}
	}
	_, err = of.State(ctx)
	if err != nil {
		return "", nil, err
	}
	return tenant, of, nil
}

func (c eventCommands) streamCommand() *cobra.Command {
	var from int64
	cmd := &cobra.Command{
		Use:     "stream STREAM",
		Short:   "Print the events of a stream",
		Example: "  millrace events stream order-17\n  millrace events stream order-17 --from 3 --json",
		Args:    cobra.ExactArgs(1),
		RunE: c.with(func(ctx context.Context, s store, args []string) error {
			if from < 1 {
				return misuse("--from must be at least 1: %d", from)
			}
			tenant, of, err := c.eventsOf(ctx, s)
			if err != nil {
				return err
			}
			found, printer := false, eventPrinter{cli: c.cli}
			for e, err := range upTo(math.MaxInt64, of.ReadStream(ctx, args[0], from)) {
				if err != nil {
					return err
				}
				found = true
				if err := printer.print(tenant, e); err != nil {
					return err
				}
			}
			if !found && from == 1 {
				return misuse("tenant %q has no stream %q", tenant, args[0])
			}
			return printer.incomplete(tenant)
		}),
	}
	cmd.Flags().Int64Var(&from, "from", 1, "first version")
	c.addStored(cmd)
	return cmd
}

type countEventsJSON struct {
	Tenant string `json:"tenant"`
	Events int64  `json:"events"`
	// UpTo is the settled mark at the time of the count.
	UpTo int64 `json:"upTo"`
}

// selection has the flags that select events.
type selection struct{ event.ReadOptions }

func (o *selection) add(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&o.After, "after", 0, "only events after this position")
	cmd.Flags().StringSliceVar(&o.Types, "type", nil, "only events of these types")
	cmd.Flags().StringVar(&o.Stream, "stream", "", "only events of this stream")
}

func (o *selection) check() error {
	if o.After < 0 {
		return misuse("--after must not be negative: %d", o.After)
	}
	return nil
}

// upTo ends a sequence of events after a position. It yields an event that cannot be read or upcast without an error,
// and with the reason as Unreadable.
func upTo(mark int64, all iter.Seq2[event.Envelope, error]) iter.Seq2[event.Envelope, error] {
	return func(yield func(event.Envelope, error) bool) {
		for e, err := range all {
			if errors.Is(err, eventtype.ErrUpcast) {
				e.Unreadable = err
			}
			if e.Unreadable != nil {
				err = nil
			}
			if err == nil && e.Position > mark || !yield(e, err) {
				return
			}
		}
	}
}

func (c eventCommands) countEventsCommand() *cobra.Command {
	var o selection
	cmd := &cobra.Command{
		Use:     "count",
		Short:   "Count events",
		Long:    "Counts the events of a tenant, up to the settled mark. It reads all of them. An event that cannot be read counts as well.",
		Example: "  millrace events count\n  millrace events count --type OrderPlaced --after 100000",
		Args:    cobra.NoArgs,
		RunE: c.with(func(ctx context.Context, s store, _ []string) error {
			n, tenant, mark, err := c.eachEvent(ctx, s, o, func(string, event.Envelope) error { return nil })
			if err != nil {
				return err
			}
			return c.print(countEventsJSON{tenant, n, mark}, func() error { return c.say("%d", n) })
		}),
	}
	o.add(cmd)
	c.addStored(cmd)
	return cmd
}

// eachEvent calls fn for each selected event up to the settled mark, and shows progress. It returns how many there
// were.
func (c eventCommands) eachEvent(ctx context.Context, s store, o selection,
	fn func(tenant string, e event.Envelope) error) (n int64, tenant string, mark int64, err error) {
	if err := o.check(); err != nil {
		return 0, "", 0, err
	}
	tenant, of, err := c.eventsOf(ctx, s)
	if err != nil {
		return 0, "", 0, err
	}
	mark, err = of.Settled(ctx)
	if err != nil {
		return 0, "", 0, err
	}
	progress := c.progress()
	defer progress.end()
	for e, err := range upTo(mark, of.ReadAll(ctx, o.ReadOptions)) {
		if err != nil {
			return n, tenant, mark, err
		}
		if err := fn(tenant, e); err != nil {
			return n, tenant, mark, err
		}
		n++
		progress.show("%s, position %d of %d", plural(n, "event"), e.Position, mark)
	}
	return n, tenant, mark, nil
}

func (c eventCommands) exportCommand() *cobra.Command {
	var o selection
	var output string
	var current bool
	export := c.with(func(ctx context.Context, s store, _ []string) error {
		if output == "" {
			c.json = true
			printer := eventPrinter{cli: c.cli}
			_, tenant, _, err := c.eachEvent(ctx, s, o, printer.print)
			return cmp.Or(err, printer.incomplete(tenant))
		}
		return c.exportFile(ctx, s, o, output)
	})
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write events as NDJSON, one JSON object in each line",
		Long: `Writes the events of a tenant up to the settled mark, in order, as NDJSON. events import reads this format. A file whose name
ends in .gz is compressed. Without --output the events are printed.

In place of an event that cannot be read, the export has a line with the member unreadable instead. The export then ends with
status 1, and keeps its file. events import names these events, and leaves them out.

Events are written as they are stored, also if the program has a registry of event types: an import is a copy. --type is a current type
then, which selects older events as well, and with --stored a stored type. With --current events are written as the program's handlers get
them, so that an import appends current types. The parts of a split event get versions of their own then. An event whose upcaster fails is
one that cannot be read.`,
		Example: "  millrace events export --output shop.ndjson.gz\n  millrace events export --type OrderPlaced --after 100000 | jq .body",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if current && c.types == nil {
				return misuse("--current needs a registry of event types, which this program does not have: see docs/cli.md")
			}
			if current && c.stored {
				return misuse("--stored and --current exclude each other")
			}
			if !current && !c.stored {
				c.stored = true
				stored, err := c.types.Stored(o.Types...)
				if err != nil {
					return misuseError{err}
				}
				o.Types = stored
			}
			return export(cmd, args)
		},
	}
	o.add(cmd)
	c.addStored(cmd)
	cmd.Flags().BoolVar(&current, "current", false, "events of current types, by the registry of event types")
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write; it must not exist. Until it is complete, its name ends in .partial")
	completeFlag(cmd, "output", eventFiles)
	return cmd
}

type exportedJSON struct {
	Tenant string `json:"tenant"`
	Events int64  `json:"events"`
	UpTo   int64  `json:"upTo"`
	File   string `json:"file"`
	// Unreadable is how many other events could not be read. The file has their positions.
	Unreadable int64 `json:"unreadable,omitempty"`
}

// exportFile writes to a file that it renames at the end: a file with the name of path is complete. After an error it
// removes the file. That some events cannot be read is no such error.
func (c eventCommands) exportFile(ctx context.Context, s store, o selection, path string) error {
	partial := path + ".partial"
	if err := isFree(path); err != nil {
		return err
	}
	file, err := os.OpenFile(partial, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	switch {
	case errors.Is(err, fs.ErrExist):
		return misuse("--output: %s exists: another export writes it, or was killed; remove it if none runs", partial)
	case err != nil:
		return misuse("--output: %w", err)
	}
	out := newWriter(file, strings.HasSuffix(path, ".gz"))
	inner := *c.cli
	inner.out, inner.json = out, true
	printer := eventPrinter{cli: &inner}
	n, tenant, mark, err := c.eachEvent(ctx, s, o, printer.print)
	err = errors.Join(err, out.Close())
	if err == nil {
		err = complete(partial, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	exported := exportedJSON{
		Tenant: tenant, Events: n - printer.unreadable, UpTo: mark, File: path, Unreadable: printer.unreadable,
	}
	err = c.print(exported, func() error {
		return c.say("wrote %s up to position %d to %s", plural(exported.Events, "event"), mark, path)
	})
	return cmp.Or(err, printer.incomplete(tenant))
}

// complete gives a file its name, unless another file has got it meanwhile.
func complete(partial, path string) error {
	if err := isFree(path); err != nil {
		return err
	}
	return os.Rename(partial, path)
}

// isFree returns an error if there is a file of that name.
func isFree(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return misuse("--output: %s exists", path)
	}
	return nil
}

// readInput returns a text that an argument gives: itself, @file, or - for the standard input.
func (c eventCommands) readInput(arg string) ([]byte, error) {
	switch {
	case arg == "-":
		return io.ReadAll(c.in)
	case strings.HasPrefix(arg, "@"):
		content, err := os.ReadFile(arg[1:])
		if err != nil {
			return nil, misuseError{err}
		}
		return content, nil
	}
	return []byte(arg), nil
}

// Command demo appends expense claims to an event store with many concurrent writers, applies four projections
// meanwhile, and checks their read models. Its store is an SQLite file or a PostgreSQL database.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/projection"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute returns the exit status: 0 only if every read model is right.
func execute(args []string, out, errs io.Writer) int { return program.Main(command(), args, out, errs) }

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Apply projections to events that many writers append, and check every read model",
		Long: `Appends expense claims to an event store with many concurrent writers, applies four projections meanwhile, and compares
every read model with a plain SQL count over the events.

The store is a temporary SQLite file, so nothing but Go is needed. With -postgres it is a private PostgreSQL server,
started from the installed binaries. -file, -database-url and DATABASE_URL select a store of your own. What the demo
creates, it removes at the end. Flags may have one dash or two.

Use the commands below to run several nodes on one store, each in a terminal of its own.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.store.resolve(cmd); err != nil {
				return err
			}
			if err := o.validate(cmd.Flags().Changed("events")); err != nil {
				return err
			}
			_, err := runDemo(cmd.Context(), o, cmd.OutOrStdout())
			return err
		},
	}
	f := cmd.Flags()
	f.Int64Var(&o.events, "events", 50_000, "number of events to generate")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the generated events and of the choice of -poison")
	f.StringVar(&o.input, "input", "",
		"append the events of this NDJSON file, plain or gzip, instead of generating them")
	f.IntVar(&o.writers, "writers", 16, "number of concurrent writers")
	f.IntVar(&o.rate, "rate", 0, "events to append per second; 0 is as fast as possible")
	f.IntVar(&o.poison, "poison", 0, "number of random events at which a handler fails")
	f.StringVar(&o.onError, "on-error", "park-stream",
		"what happens to an event of -poison: park-stream (with later events of its stream), park (alone), skip, or stop (the projection)")
	f.BoolVar(&o.replay, "replay", false, "at the end, repair the handlers and replay the parked events")
	o.store.add(cmd)
	f.BoolVar(&o.store.postgres, "postgres", false, "start a private PostgreSQL server from the installed binaries")
	f.BoolVar(&o.keep, "keep", false, "keep the tables at the end")
	f.BoolVar(&o.json, "json", false, "print the summary as one JSON object on the last line")
	f.StringVar(&o.log, "log", "", "write the library's log to this file")
	f.SortFlags = false
	cmd.AddCommand(nodeCommand(), loadCommand(), statusCommand(), checkCommand(), cleanCommand(), serveCommand())
	return cmd
}

// options are the flags.
type options struct {
	events  int64
	seed    uint64
	input   string
	writers int
	rate    int
	poison  int
	onError string
	replay  bool
	store   storeFlags
	keep    bool
	json    bool
	log     string
}

func (o options) validate(eventsGiven bool) error {
	onError, known := onErrors[o.onError]
	switch {
	case o.events < 1:
		return fmt.Errorf("-events must be at least 1: %d", o.events)
	case o.input != "" && eventsGiven:
		return errors.New("-events and -input exclude each other: a file is appended as a whole")
	case o.rate < 0:
		return fmt.Errorf("-rate must not be negative: %d", o.rate)
	case o.poison < 0:
		return fmt.Errorf("-poison must not be negative: %d", o.poison)
	case !known:
		return fmt.Errorf("-on-error must be park-stream, park, skip or stop: %q", o.onError)
	case onError != projection.ActionParkStream && o.poison == 0:
		return fmt.Errorf("-on-error %s needs -poison: without it nothing fails", o.onError)
	case o.replay && o.poison == 0:
		return errors.New("-replay needs -poison: without it nothing is parked")
	case o.replay && onError != projection.ActionPark && onError != projection.ActionParkStream:
		return fmt.Errorf("-replay and -on-error %s exclude each other: only parked events can be replayed", o.onError)
	case o.keep && o.store.databaseURL == "" && o.store.file == "":
		return errors.New("-keep needs -file or -database-url: a temporary store is removed at the end")
	}
	return program.ValidWriters(o.writers)
}

// workload returns the source of the events and its description.
func (o options) workload() (from source, name string) {
	if o.input != "" {
		return readFile(o.input), "from " + o.input
	}
	return generate(o.events, o.seed), fmt.Sprintf("of generated expense claims, seed %d", o.seed)
}

// describePoison says which events fail and what happens to them.
func (o options) describePoison() string {
	if o.poison == 0 {
		return ""
	}
	outcome := "parks it"
	switch o.action() {
	case projection.ActionParkStream:
		outcome = "parks it and the later events of its stream"
	case projection.ActionSkip:
		outcome = "skips it"
	case projection.ActionStop:
		outcome = "stops"
	}
	if o.replay {
		outcome += "; at the end the handlers are repaired and the parked events replayed"
	}
	return fmt.Sprintf("%d poison events: at each, one projection fails, retries, and %s", o.poison, outcome)
}

// action returns what happens to events that fail.
func (o options) action() projection.Action { return onErrors[o.onError] }

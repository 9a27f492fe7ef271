// Command demo appends an expense-claim process to an event store with many writers at once, and applies four projections
// from it, to the last event. Without a -database-url it starts a private PostgreSQL from the installed binaries and removes
// it at the end.
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

// execute returns the exit status: 0 only if every read model was right.
func execute(args []string, out, errs io.Writer) int { return program.Main(command(), args, out, errs) }

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Projections applied from a live, concurrently written event store, and checked to the last event",
		Long: `Appends an expense-claim process to an event store with many writers at once, applies four projections from it
while that goes on, and checks every read model against a plain SQL count over the events.

Without -database-url and DATABASE_URL it starts a private PostgreSQL from the installed binaries, and removes it at
the end. Flags may be written with one dash or two.

The commands below are for trying several nodes on one database, each in a terminal of its own.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.databaseURL = program.DatabaseURL(cmd, o.databaseURL)
			if err := o.validate(cmd.Flags().Changed("events")); err != nil {
				return err
			}
			_, err := runDemo(cmd.Context(), o, cmd.OutOrStdout())
			return err
		},
	}
	f := cmd.Flags()
	f.Int64Var(&o.events, "events", 50_000, "how many events are made")
	f.Uint64Var(&o.seed, "seed", 1, "what the events, and the choice of -poison, are made from")
	f.StringVar(&o.input, "input", "", "append the events of this log, NDJSON or NDJSON.gz, instead of making some")
	f.IntVar(&o.writers, "writers", 16, "how many append at once")
	f.IntVar(&o.rate, "rate", 0, "events per second to append; 0 is as fast as possible")
	f.IntVar(&o.poison, "poison", 0, "how many events, chosen by the seed, a projection's handler fails at")
	f.StringVar(&o.onError, "on-error", "park", "what happens to an event of -poison: park, park-stream (with later events of its stream), skip, or stop the projection")
	f.BoolVar(&o.replay, "replay", false, "in the end, fix the fault that -poison makes and replay what was parked")
	f.StringVar(&o.databaseURL, "database-url", "", `use this database; "" is a private server (default $DATABASE_URL)`)
	f.BoolVar(&o.keep, "keep", false, "keep the tables in the database")
	f.BoolVar(&o.json, "json", false, "print the summary as one JSON object on the last line")
	f.StringVar(&o.log, "log", "", "write the library's log to this file")
	f.SortFlags = false
	cmd.AddCommand(nodeCommand(), loadCommand(), statusCommand(), checkCommand(), cleanCommand(), serveCommand())
	return cmd
}

// options are the flags.
type options struct {
	events      int64
	seed        uint64
	input       string
	writers     int
	rate        int
	poison      int
	onError     string
	replay      bool
	databaseURL string
	keep        bool
	json        bool
	log         string
}

func (o options) validate(eventsGiven bool) error {
	onError, known := onErrors[o.onError]
	switch {
	case o.events < 1:
		return fmt.Errorf("-events must be at least 1: %d", o.events)
	case o.input != "" && eventsGiven:
		return errors.New("-events and -input exclude each other: a log is appended as a whole")
	case o.rate < 0:
		return fmt.Errorf("-rate must not be negative: %d", o.rate)
	case o.poison < 0:
		return fmt.Errorf("-poison must not be negative: %d", o.poison)
	case !known:
		return fmt.Errorf("-on-error must be park, park-stream, skip or stop: %q", o.onError)
	case onError != projection.ActionPark && o.poison == 0:
		return fmt.Errorf("-on-error %s needs -poison: without it nothing fails", o.onError)
	case o.replay && o.poison == 0:
		return errors.New("-replay needs -poison: without it nothing is parked")
	case o.replay && onError != projection.ActionPark && onError != projection.ActionParkStream:
		return fmt.Errorf("-replay and -on-error %s exclude each other: only parked events can be replayed", o.onError)
	case o.keep && o.databaseURL == "":
		return errors.New("-keep needs -database-url: a private server is removed with all that is in it")
	}
	return program.ValidWriters(o.writers)
}

// workload is the source of the events, and its description.
func (o options) workload() (from source, name string) {
	if o.input != "" {
		return readFile(o.input), "from " + o.input
	}
	return generate(o.events, o.seed), fmt.Sprintf("of generated expense claims, seed %d", o.seed)
}

// poisonNote says what will fail.
func (o options) poisonNote() string {
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
		outcome += "; in the end the fault is fixed and what is parked is replayed"
	}
	return fmt.Sprintf("%d poison events: at each, one of the projections fails, retries and %s", o.poison, outcome)
}

// action is what happens to the events that fail.
func (o options) action() projection.Action { return onErrors[o.onError] }

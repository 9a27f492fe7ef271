// Command bench measures millrace side by side with what one would write by hand, and prints ratios. Absolute figures say
// more about the machine. Without a -database-url it starts a private PostgreSQL from the installed binaries and removes
// it at the end.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/internal/program"
)

const long = `Measures millrace side by side with what one would write by hand, and prints ratios: a line's figure over that of the
first line of its kind. Absolute figures say more about the machine. All contenders use the same server, tables and handler,
which writes a batch by one statement. After each round what was written is counted, and a wrong count is an error.

latency   From the return of an append until this program knows that the transaction which applied the event has
          committed. A lower ratio is better. One event at a time, 3 ms apart, so that nothing queues; not in it is the
          append itself, for which see "append".
            LISTEN loop by hand         notified by a NOTIFY inside the appending transaction, it reads beyond its
                                        checkpoint (one round trip), applies and moves the checkpoint (four)
            millrace, woken in process  appended through the store that the runtime works with
            millrace, woken by NOTIFY   appended through another store, as another process would; the NOTIFY follows the
                                        commit, as a statement of its own
catchup   A projection that has everything to do. A higher ratio is better.
            loop by hand                one connection that reads 500 events, applies them, moves the checkpoint, and so
                                        on; from connecting to the last commit. It knows nothing of gaps, leases or
                                        failures
            millrace                    RunUntilIdle: starting, taking the lease, applying and stopping, all included
append    Writers on a connection each, and each with streams of its own, append one event at a time, with no projection
          running. A higher ratio is better.
            no notification             one statement, one round trip, and no notification
            millrace                    the same; a NOTIFY follows commits, at most one in 2 ms
            notify in the transaction   begin, append, NOTIFY, commit: four round trips, and PostgreSQL commits notifying
                                        transactions one at a time

In each round the contenders run in another order; six rounds have all possible orders. Speeds are medians of
the rounds, latencies are percentiles of all rounds' probes, and a ratio is that of the figures printed. Behind it stand
the lowest and the highest ratio of a single round: where they are far apart, the machine was not quiet.

Without -database-url and DATABASE_URL it starts a private PostgreSQL from the installed binaries, with fsync on as in
production, and removes it at the end. On a given database it works in the schemas bench, bench_millrace and
bench_millrace_default; it refuses to where any of them exists, and removes them at the end. Flags may be written with
one dash or two.`

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute returns the exit status.
func execute(args []string, out, errs io.Writer) int { return program.Main(command(), args, out, errs) }

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Latency, catch-up and append speed, side by side with what one would write by hand",
		Long:  long,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.databaseURL = program.DatabaseURL(cmd, o.databaseURL)
			if err := o.validate(); err != nil {
				return err
			}
			return run(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.only, "only", "", "make one measurement: "+choices()+` (default "", all)`)
	f.IntVar(&o.rounds, "rounds", 6, "how often each contender runs")
	f.IntVar(&o.probes, "probes", 500, "latency: events that are timed in each round")
	f.IntVar(&o.events, "events", 200_000, "catchup: events to apply in each round")
	f.IntVar(&o.writers, "writers", 16, "append: how many append at once")
	f.DurationVar(&o.appendTime, "append-time", 3*time.Second, "append: how long they append in each round")
	f.StringVar(&o.databaseURL, "database-url", "", `use this database; "" is a private server (default $DATABASE_URL)`)
	f.SortFlags = false
	return cmd
}

// options are the flags.
type options struct {
	only        string
	rounds      int
	probes      int
	events      int
	writers     int
	appendTime  time.Duration
	databaseURL string
}

func (o options) validate() error {
	for _, flag := range []struct {
		name  string
		value int
	}{{"rounds", o.rounds}, {"probes", o.probes}, {"events", o.events}} {
		if flag.value < 1 {
			return fmt.Errorf("-%s must be at least 1: %d", flag.name, flag.value)
		}
	}
	switch {
	case o.only != "" && !slices.ContainsFunc(measurements, func(m measurement) bool { return m.name == o.only }):
		return fmt.Errorf("-only must be %s: %q", choices(), o.only)
	case o.appendTime <= 0:
		return fmt.Errorf("-append-time must be above 0: %v", o.appendTime)
	}
	return program.ValidWriters(o.writers)
}

// choices are the names that -only takes, for people.
func choices() string {
	var names []string
	for _, m := range measurements {
		names = append(names, m.name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

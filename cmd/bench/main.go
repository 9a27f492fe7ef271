// Command bench compares millrace with handwritten code and prints ratios. Without -database-url it starts a private PostgreSQL
// and removes it at the end; the measurement embedded needs none.
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

const long = `Compares millrace with handwritten code and prints ratios: the figure of a line divided by that of the first line of its
comparison. The figures themselves depend on the machine. All contenders use the same server, tables and handler, which
writes a batch with one statement. After each round the written rows are counted, and a wrong count is an error.

latency   The time from the return of an append until this program knows that the transaction that applied the event has
          committed. A lower ratio is better. Events are appended one at a time, 3 ms apart. The append itself is not
          included.
            handwritten LISTEN loop     a NOTIFY inside the appending transaction wakes it; it reads after its checkpoint
                                        (one round trip), applies, and advances the checkpoint (four)
            millrace, woken in process  the event is appended through the store of the runtime
            millrace, woken by NOTIFY   the event is appended through another store, as by another process; the NOTIFY is
                                        a statement after the commit
catchup   The speed of a projection that has to apply all events. A higher ratio is better.
            handwritten loop            one connection that reads 500 events, applies them, advances the checkpoint, and
                                        repeats, from connecting to the last commit; it does not handle gaps, leases or
                                        failures
            millrace                    RunUntilIdle, including the start, the lease and the stop
append    Concurrent writers with a connection and streams of their own append one event at a time. No projection runs.
          A higher ratio is better.
            no notification             one statement in one round trip, without a notification
            millrace                    the same; a NOTIFY follows the commits, at most one in 2 ms
            notify in the transaction   begin, append, NOTIFY, commit: four round trips, and PostgreSQL commits notifying
                                        transactions one at a time
fairness  The latency, as above, of a tenant with single events while other tenants have a large backlog. The batches of the
          backlog sleep for 10 ms, so that slots are scarce and processors are not. The ratio is that of the p99; a lower
          ratio is better.
            no flood                    the tenant is alone
            one tenant floods           with 8 projections; it may have half of the slots
            10 tenants flood            with 8 projections each; they have all slots
embedded  The store in a file beside handwritten code over database/sql and the same driver, with the same settings (a synced
          commit) and prepared statements. No server is used.
            append                      one and 32 writers append one event at a time; the handwritten code appends them one
                                        by one to a table of its own
            live                        the same appends, while a projection applies each event; from the first append to the
                                        last commit
            latency                     as above; a channel wakes the handwritten loop after each append
            catch-up                    as above
          A higher ratio is better, and for latency a lower one.

The order of the contenders changes with each round; six rounds have all possible orders. Speeds are medians of the rounds,
latencies are percentiles of all probes, and ratios are those of the printed figures. After each ratio come the lowest and
the highest ratio of a single round: if they are far apart, other programs used the machine.

Without -database-url and DATABASE_URL it starts a private PostgreSQL from the installed binaries, with fsync on as in
production, and removes it at the end. On a given database it creates the schemas bench, bench_millrace and
bench_millrace_default, and removes them at the end. If one of them exists, it refuses to run. Flags may have one dash or
two.`

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute returns the exit status.
func execute(args []string, out, errs io.Writer) int { return program.Main(command(), args, out, errs) }

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Compare latency, catch-up and append speed with handwritten code",
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
	f.StringVar(&o.only, "only", "", "only this measurement: "+choices()+` (default "", all)`)
	f.IntVar(&o.rounds, "rounds", 6, "number of rounds, in which each contender runs once")
	f.IntVar(&o.probes, "probes", 500, "latency: events in each round")
	f.IntVar(&o.events, "events", 200_000, "catchup: events to apply in each round")
	f.IntVar(&o.writers, "writers", 16, "append: number of concurrent writers")
	f.DurationVar(&o.appendTime, "append-time", 3*time.Second, "append: duration of each round")
	f.StringVar(&o.databaseURL, "database-url", "", `database to use; "" is a private server (default $DATABASE_URL)`)
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

// choices returns the names of the measurements, for people.
func choices() string {
	var names []string
	for _, m := range measurements {
		names = append(names, m.name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

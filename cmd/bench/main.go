// Command bench compares millrace with handwritten code and with other libraries. Without -database-url it starts a
// private PostgreSQL and removes it at the end. It is a module of its own, so that users of millrace inherit none of
// what it compares with.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/internal/program"
)

const long = `Compares millrace with handwritten code and with other libraries. Each scenario prints tables, and says which of its goals
are met. With -json it prints one object per line instead, with the machine, the versions and the settings.

%s
All contenders of a table run in the same process, on the same server, with the same events and tables. Each round runs every
contender once, in an order that changes from round to round. Before a figure is taken, its contender is verified: what it
wrote is counted, and handlers check the order of their events. A wrong count or order is an error. Figures are medians of the
rounds. A ratio compares a median with the median of the first line. In brackets are the lowest and the highest ratio of
a single round. If they are far apart, other programs used the machine.

Without -database-url and DATABASE_URL it starts a private PostgreSQL from the installed binaries, with fsync on as in
production, and removes it at the end. On a given server it creates the database ` + databaseName + `, and removes it at the end. If that
exists, it refuses to run. Flags may have one dash or two.`

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute returns the exit status.
func execute(args []string, out, errs io.Writer) int { return program.Main(command(), args, out, errs) }

// options are the flags.
type options struct {
	scenarios   []string
	quick       bool
	json        bool
	write       string
	sizes       sizeOptions
	cpuProfile  string
	memProfile  string
	databaseURL string
	roundTrip   time.Duration
}

func command() *cobra.Command {
	var o options
	var rounds, events, projections int
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Compare millrace with handwritten code and with other libraries",
		Long:  fmt.Sprintf(long, abouts()),
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.databaseURL = program.DatabaseURL(cmd, o.databaseURL)
			o.sizes = fullSizes()
			if o.quick {
				o.sizes = quickSizes()
			}
			if cmd.Flags().Changed("rounds") {
				o.sizes.rounds = rounds
			}
			if cmd.Flags().Changed("events") {
				o.sizes.catchUpEvents = events
			}
			if cmd.Flags().Changed("projections") {
				o.sizes.idleProjections, o.sizes.startProjections, o.sizes.takeoverLeases = []int{projections},
					[]int{projections}, []int{projections / 2}
			}
			if err := o.validate(); err != nil {
				return err
			}
			return profiled(o, func() error { return run(cmd.Context(), o, cmd.OutOrStdout()) })
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.scenarios, "scenario", nil, "scenarios, separated by commas (default all)")
	f.BoolVar(&o.quick, "quick", false, "small sizes: all scenarios within three minutes on two processors")
	f.BoolVar(&o.json, "json", false, "print one JSON object per line instead of tables")
	f.StringVar(&o.write, "write", "",
		"also write the tables and plots of each scenario into this Markdown `file`, between its markers")
	f.IntVar(&rounds, "rounds", 0, "number of rounds, in which each contender runs once (default 5, quick 2)")
	f.IntVar(&events, "events", 0, "catchup: events to apply in each round (default 500000, quick 200000)")
	f.IntVar(&projections, "projections", 0,
		"idle, start and takeover: number of projections (default 20000 and 100000, quick less)")
	f.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile of all contenders to this `file`")
	f.StringVar(&o.memProfile, "memprofile", "", "write a profile of all allocations to this `file`")
	f.StringVar(&o.databaseURL, "database-url", "", `server to use; "" is a private server (default $DATABASE_URL)`)
	f.DurationVar(&o.roundTrip, "round-trip", 0,
		"how much longer each round trip takes, as if the server were on another machine; goals are not judged, and "+
			"own CPU and allocations have those of the delay in them (default 0s)")
	f.SortFlags = false
	cmd.AddCommand(newNodeCommand())
	return cmd
}

// nodeCommand runs a node for the scenario takeover.
const nodeCommand = "node"

// abouts returns what the scenarios measure, for the help.
func abouts() string {
	var b strings.Builder
	for _, s := range scenarios {
		fmt.Fprintf(&b, "%s\n", s.name)
		for line := range strings.Lines(wrap(s.about, 118)) {
			fmt.Fprintf(&b, "    %s", line)
		}
	}
	return b.String()
}

// wrap breaks a paragraph into lines. Each of them ends with a line break.
func wrap(text string, width int) string {
	var b strings.Builder
	length := 0
	for _, word := range strings.Fields(text) {
		switch {
		case length == 0:
		case length+1+len(word) > width:
			b.WriteByte('\n')
			length = 0
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	return b.String() + "\n"
}

// profiled writes profiles of fn to the files of -cpuprofile and -memprofile.
func profiled(o options, fn func() error) (err error) {
	if o.memProfile != "" {
		defer func() { err = errors.Join(err, writeFile(o.memProfile, pprof.Lookup("allocs"))) }()
	}
	if o.cpuProfile == "" {
		return fn()
	}
	file, err := os.Create(o.cpuProfile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return fn()
}

func writeFile(path string, profile *pprof.Profile) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(profile.WriteTo(file, 0), file.Close())
}

func (o options) validate() error {
	names := scenarioNames()
	for _, name := range o.scenarios {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-scenario must be among %s: %q", strings.Join(names, ", "), name)
		}
	}
	if o.write != "" {
		if o.json {
			return errors.New("-write needs tables: leave out -json")
		}
		if _, err := os.Stat(o.write); err != nil {
			return err
		}
	}
	if o.roundTrip < 0 {
		return fmt.Errorf("-round-trip must not be negative: %v", o.roundTrip)
	}
	if o.roundTrip > 0 && slices.ContainsFunc(o.chosen(), func(s scenario) bool { return s.embedded }) {
		return errors.New("-round-trip is for scenarios with a server: choose some by -scenario")
	}
	return o.sizes.validate()
}

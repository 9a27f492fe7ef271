// Package commandline is the command line of operators: it observes and changes the projections, tenants, dead letters
// and events of a store, from any process that has access to it. docs/cli.md describes its commands.
//
// The command cmd/millrace is this package without a registry of event types. A program with a registry is its own
// command line:
//
//	func main() { os.Exit(commandline.Main(os.Args[1:], commandline.Options{Types: types})) }
//
// It shows events as the handlers of the program get them, and appends only what the program could append. Its texts
// call the command millrace, and shell completion does: build it with that name, or set an alias. It links the drivers
// of both stores.
package commandline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/internal/console"
)

// The exit statuses.
const (
	done = iota
	failed
	misused
	foundSomething
)

// Options are what a program gives to its command line. The zero value is that of cmd/millrace.
type Options struct {
	// Types is the registry of event types of the program, as in pgstore.Options and sqlitestore.Options. Default:
	// none. Then events are shown and appended as they are.
	Types *eventtype.Types
}

// Main runs a command for the process, until it ends or a signal interrupts it, and returns the exit status. The
// arguments are those after the name of the program. Without any it prints its help.
func Main(args []string, o Options) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	return execute(ctx, args, o, os.Stdin, os.Stdout, os.Stderr)
}

// execute runs a command until it ends or ctx does, and returns the exit status.
func execute(ctx context.Context, args []string, o Options, in io.Reader, out, errs io.Writer) int {
	c := &cli{types: o.Types, in: in, out: out, errs: errs}
	cmd := c.command()
	cmd.SetArgs(append([]string{}, args...)) // not nil, which stands for the arguments of the process
	cmd.SetIn(in)
	cmd.SetOut(out)
	cmd.SetErr(errs)
	refuseUnknown(cmd)
	nameArguments(cmd)
	ran, err := cmd.ExecuteContextC(ctx)
	status := c.status(err)
	if err != nil && !errors.Is(err, errFound) {
		fmt.Fprintf(errs, "millrace: %s\n", console.OneLine(err.Error()))
	}
	if status == misused {
		fmt.Fprintf(errs, "For help: %s --help\n", ran.CommandPath())
	}
	return status
}

// refuseUnknown lets the commands that cobra adds refuse unknown names. The outputs must be set before.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Run, cmd.RunE = nil, func(_ *cobra.Command, args []string) error {
				of, _, err := root.Find(args)
				if err != nil {
					return misuse("unknown help topic %q", strings.Join(args, " "))
				}
				return of.Help()
			}
		case "completion":
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, needsCommand
		}
	}
}

// nameArguments lets errors about the number of arguments name the arguments of the command.
func nameArguments(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		nameArguments(sub)
	}
	check := cmd.Args
	_, arguments, takes := strings.Cut(cmd.Use, " ")
	if check == nil || !takes {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return misuse("%s needs %s: %w", cmd.CommandPath(), arguments, err)
		}
		return nil
	}
}

// status returns the exit status for the error of a command. An error before a command runs is one of its arguments.
func (c *cli) status(err error) int {
	switch {
	case err == nil:
		return done
	case errors.Is(err, errFound):
		return foundSomething
	case !c.running || errors.As(err, new(misuseError)) || isBadInput(err):
		return misused
	}
	return failed
}

// errFound is returned by commands that search and found something. They have printed it.
var errFound = errors.New("found something")

// misuseError is an error of the arguments.
type misuseError struct{ error }

func misuse(format string, args ...any) error { return misuseError{fmt.Errorf(format, args...)} }

func (c *cli) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "millrace",
		Short: "Observe and change the projections, tenants, dead letters and events of a store",
		Long: `Observes and changes the projections, tenants, dead letters and events of a store.

The store is a PostgreSQL database (--database-url or the environment variable DATABASE_URL) or a file (--file). Commands
work on the default tenant, unless --tenant or --all-tenants selects others. A program with a registry of event types shows events as its
handlers get them; --stored shows them as they are stored.

Exit status: 0 done; 1 failed; 2 wrong arguments, or a tenant, projection, stream, dead letter or event type that does not exist; 3 check,
doctor or migrate status found something.`,
		Example: `  export DATABASE_URL=postgres://shop@db.example.com/shop
  millrace projections watch
  millrace dead-letters list totals
  millrace --file shop.db projections pause totals`,
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) { c.running = true },
	}
	f := cmd.PersistentFlags()
	f.StringVar(&c.databaseURL, "database-url", "", "PostgreSQL database of the store (default $DATABASE_URL)")
	f.StringVar(&c.file, "file", "", "SQLite file of the store")
	f.StringVar(&c.schema, "schema", "", "control schema of the store in PostgreSQL (default millrace)")
	f.StringVar(&c.sessionURL, "session-url", "", "PostgreSQL address that bypasses a pooler in transaction mode")
	f.StringVar(&c.tenant, "tenant", "", "tenant to work on (default: the default tenant)")
	f.BoolVar(&c.allTenants, "all-tenants", false, "work on all tenants")
	f.BoolVar(&c.json, "json", false, "print JSON, see docs/cli.md")
	f.DurationVar(&c.timeout, "timeout", 0, "give up after this time (default: never)")
	f.SortFlags = false
	whole := storeCommands{c}
	cmd.AddCommand(whole.migrateCommand(), whole.summaryCommand(), whole.nodesCommand(),
		tenantCommands{c}.tenantsCommand(), projectionCommands{c}.projectionsCommand(),
		letterCommands{c}.deadLettersCommand(), eventCommands{c}.eventsCommand(), whole.checkCommand(),
		whole.doctorCommand(), whole.versionCommand())
	c.completeFlags(cmd)
	return cmd
}

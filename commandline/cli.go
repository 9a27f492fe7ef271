package commandline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
	"github.com/millrace-go/millrace/tenancy"
)

// cli has the flags of all commands and where they read and print.
type cli struct {
	databaseURL, file, schema, sessionURL string
	tenant                                string
	allTenants, json                      bool
	timeout                               time.Duration
	// types is the registry of the program, nil if it has none. With --stored it is not used.
	types  *eventtype.Types
	stored bool

	in        io.Reader
	out, errs io.Writer
	// running means that the arguments were accepted.
	running bool
}

// The commands of each group.
type (
	eventCommands      struct{ *cli }
	letterCommands     struct{ *cli }
	projectionCommands struct{ *cli }
	tenantCommands     struct{ *cli }
	storeCommands      struct{ *cli }
)

// isBadInput reports whether an error means that something that the arguments name does not exist, or that an address
// is malformed.
func isBadInput(err error) bool {
	for _, of := range []error{tenancy.ErrUnknown, projection.ErrUnknownProjection, projection.ErrDeadLetterNotFound,
		projection.ErrCommandNotFound,
		projection.ErrOperationNotFound, projection.ErrRetired, event.ErrNotFound, eventtype.ErrNotRegistered,
		eventtype.ErrOutdated,
		sqlitestore.ErrForeignFile} {
		if errors.Is(err, of) {
			return true
		}
	}
	return errors.As(err, new(*pgconn.ParseConfigError))
}

// action is what a command does with an open store.
type action func(ctx context.Context, s store, args []string) error

// with returns the function of a command that needs a store.
func (c *cli) with(do action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, cancel := c.limited(cmd.Context())
		defer cancel()
		s, err := c.open(ctx)
		if err != nil {
			return err
		}
		defer s.Close()
		return c.explained(ctx, do(ctx, s, args))
	}
}

// limited returns ctx with the time limit of --timeout.
func (c *cli) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.timeout)
}

// explained returns the error of a command with what to do about it.
func (c *cli) explained(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNotMigrated), errors.Is(err, errFileNotMigrated):
		return errors.New("the tables of the store are missing or too old: run millrace migrate up; millrace doctor has the details")
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && c.timeout > 0:
		return fmt.Errorf("--timeout (%v) has passed: %w", c.timeout, err)
	}
	return err
}

// check returns an error if the flags for the store or the tenant contradict each other.
func (c *cli) check() error {
	switch {
	case c.file != "" && c.databaseURL != "":
		return misuse("--file and --database-url exclude each other")
	case c.file != "" && c.schema != "":
		return misuse("--schema is for PostgreSQL: a file has no schemas")
	case c.file != "" && c.sessionURL != "":
		return misuse("--session-url is for PostgreSQL: a file has no sessions")
	case c.tenant != "" && c.allTenants:
		return misuse("--tenant and --all-tenants exclude each other")
	case c.timeout < 0:
		return misuse("--timeout must not be negative: %v", c.timeout)
	}
	if _, err := pgstore.ControlMigrations(c.schema, 0); err != nil {
		return misuse("--schema: %w", err)
	}
	return nil
}

// open opens the store. A file must exist.
func (c *cli) open(ctx context.Context) (store, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	url := c.url()
	switch {
	case c.file != "":
		if _, err := os.Stat(c.file); err != nil {
			return nil, misuse("--file: %w", err)
		}
		return openFile(ctx, c.file, c.registry())
	case url != "":
		return openPostgres(ctx, url, c.schema, c.sessionURL, c.registry())
	}
	return nil, misuse("no store is given: set --database-url, DATABASE_URL or --file")
}

// registry returns the registry with which events are read and appended.
func (c *cli) registry() *eventtype.Types {
	if c.stored {
		return nil
	}
	return c.types
}

// addStored adds the flag of commands that read events or select by their types.
func (c *cli) addStored(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.stored, "stored", false,
		"events and types as they are stored, without the registry of event types")
}

func (c *cli) url() string {
	if c.databaseURL != "" {
		return c.databaseURL
	}
	return os.Getenv("DATABASE_URL")
}

// oneTenant returns the tenant of a command that works on one.
func (c *cli) oneTenant() (string, error) {
	if c.allTenants {
		return "", misuse("--all-tenants has no effect here: this command works on one tenant")
	}
	if c.tenant == "" {
		return projection.DefaultTenant, nil
	}
	return c.tenant, nil
}

// noTenants returns an error if a tenant is selected for a command that works on the whole store.
func (c *cli) noTenants() error {
	if c.tenant != "" || c.allTenants {
		return misuse("--tenant and --all-tenants have no effect here: this command works on the whole store")
	}
	return nil
}

// selected returns the tenants that the flags select, nil for all.
func (c *cli) selected() []string {
	switch {
	case c.allTenants:
		return nil
	case c.tenant == "":
		return []string{projection.DefaultTenant}
	}
	return []string{c.tenant}
}

// print prints the value with --json, and calls text otherwise.
func (c *cli) print(value any, text func() error) error {
	if c.json {
		return c.printJSON(value)
	}
	return text()
}

// printJSON prints a value as one line.
func (c *cli) printJSON(value any) error {
	encoder := json.NewEncoder(c.out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// table prints a table, or a sentence if it has no rows.
func (c *cli) table(t console.Table, none string) error {
	if len(t.Rows) == 0 {
		return c.say("%s", none)
	}
	return console.NewView(c.out).Table(t)
}

// say prints one line.
func (c *cli) say(format string, args ...any) error {
	_, err := fmt.Fprintln(c.out, console.OneLine(fmt.Sprintf(format, args...)))
	return err
}

// group returns a command that only has commands below it.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: needsCommand}
	cmd.AddCommand(commands...)
	return cmd
}

// needsCommand is run for a group of commands.
func needsCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return misuse("%s needs a command: one of %s", cmd.CommandPath(), names(cmd))
	}
	return misuse("%s has no command %q, only %s", cmd.CommandPath(), args[0], names(cmd))
}

func names(cmd *cobra.Command) string {
	var all []string
	for _, sub := range cmd.Commands() {
		all = append(all, sub.Name())
	}
	return strings.Join(all, ", ")
}

// full returns an ID with the tenant.
func full(tenant, name string) millrace.ProjectionID {
	return millrace.ProjectionID{Tenant: tenant, Name: name}
}

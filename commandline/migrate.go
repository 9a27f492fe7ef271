package commandline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/pgstore"
)

func (c storeCommands) migrateCommand() *cobra.Command {
	up := &cobra.Command{
		Use:   "up",
		Short: "Bring the store and all tenants to this program's version",
		Long: `Creates or updates the tables of the store and of all tenants, and creates the default tenant. A file that does not exist is
created. Nodes of the previous version continue to work.

It does not run the steps of Options.TenantSetup: your program runs them when it calls Migrate.`,
		Example: "  millrace migrate up\n  millrace --file shop.db migrate up",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.migrateUp(cmd.Context())
		},
	}
	status := &cobra.Command{
		Use:     "status",
		Short:   "Show which migrations the store and its tenants lack",
		Long:    "Shows the versions of the store and how many tenants lack migrations. Exits with 3 if migrations are missing.",
		Example: "  millrace migrate status || millrace migrate up",
		Args:    cobra.NoArgs,
		RunE:    c.with(func(ctx context.Context, s store, _ []string) error { return c.migrateStatus(ctx, s) }),
	}
	return group("migrate", "Create and update the tables of the store", up, status, c.migrateSQLCommand())
}

type migratedJSON struct {
	Migrated bool `json:"migrated"`
	Tenants  int  `json:"tenants"`
}

func (c storeCommands) migrateUp(ctx context.Context) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	err := c.check()
	if err != nil {
		return err
	}
	if err := c.noTenants(); err != nil {
		return err
	}
	var s store
	if c.file != "" {
		if _, err := os.Stat(filepath.Dir(c.file)); err != nil {
			return misuse("--file: %w", err)
		}
		s, err = openFile(ctx, c.file, c.registry()) // creates it
	} else {
		s, err = c.open(ctx)
	}
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Migrate(ctx); err != nil {
		return c.explained(ctx, err)
	}
	tenants, err := s.Tenants(ctx)
	if err != nil {
		return err
	}
	return c.print(migratedJSON{true, len(tenants)}, func() error {
		return c.say("the store and %s are at the version of this program", plural(len(tenants), "tenant"))
	})
}

// plural returns a number of things.
func plural[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func (c storeCommands) migrateSQLCommand() *cobra.Command {
	var after int
	cmd := &cobra.Command{
		Use:   "sql",
		Short: "Print the migrations as SQL, for other tools",
		Long: `Prints the SQL that migrate up would run in PostgreSQL: that of the control schema, or with --tenant that of a tenant. Run
each in one transaction, the control schema first. The SQL fails without effect if the database is at another version than
--after. It needs no connection.`,
		Example: `  millrace migrate sql | psql --single-transaction
  millrace migrate sql --tenant default | psql --single-transaction
  millrace migrate sql --schema shop_events --after 1`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := c.check(); err != nil {
				return err
			}
			if c.file != "" || c.allTenants {
				return misuse("migrate sql is for PostgreSQL, and for one tenant at a time: a file is migrated by migrate up")
			}
			sql, err := pgstore.ControlMigrations(c.schema, after)
			if c.tenant != "" {
				sql, err = pgstore.TenantMigrations(c.schema, c.tenant, after)
			}
			if err != nil {
				return misuseError{err}
			}
			return c.print(map[string]string{"sql": sql}, func() error {
				_, err := fmt.Fprint(c.out, sql)
				return err
			})
		},
	}
	cmd.Flags().IntVar(&after, "after", 0, "version of the database, 0 for a new one")
	return cmd
}

func (c storeCommands) migrateStatus(ctx context.Context, s store) error {
	if err := c.noTenants(); err != nil {
		return err
	}
	a, err := admin.New(s)
	if err != nil {
		return err
	}
	v, err := a.Schema(ctx)
	if err != nil {
		return err
	}
	err = c.print(v, func() error {
		lines := []string{fmt.Sprintf("the store is at version %d, this program at %d", v.Found, v.Newest)}
		if n := len(v.Outdated); n > 0 {
			lines = append(lines, fmt.Sprintf("%s to migrate: %s",
				plural(n, "tenant"), strings.Join(v.Outdated[:min(10, n)], ", ")))
		}
		return console.NewView(c.out).Print(lines...)
	})
	if err == nil && (v.Found < v.Newest || len(v.Outdated) > 0) {
		err = errFound
	}
	return err
}

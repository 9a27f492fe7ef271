package commandline

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

type doctorJSON struct {
	Findings []projection.Finding `json:"findings"`
}

func (c storeCommands) doctorCommand() *cobra.Command {
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find faults of the set-up, and say what to do",
		Long: `Examines the store and its surroundings. In PostgreSQL: the version and the settings of the server, whether it is the primary,
permissions, indexes, sequences, notifications, poolers, clocks, connections, old and prepared transactions, and the table of
leases. In a file: damage, permissions, indexes, the owner and the log. In both: the schema, the tenants, and what check finds,
apart from lags. Exits with 3 if it finds something.

Run it as the role that runs the projections, with the DSN of their pool (pool_max_conns included) and with --session-url if they
use one.`,
		Example: "  millrace doctor\n  millrace doctor --session-url postgres://db.example.com/shop --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if patience <= 0 {
				return misuse("--patience must be positive: %v", patience)
			}
			if err := c.noTenants(); err != nil {
				return err
			}
			ctx, cancel := c.limited(cmd.Context())
			defer cancel()
			found, err := c.diagnose(ctx, patience)
			if err != nil {
				return err
			}
			return c.printFound(doctorJSON{append([]projection.Finding{}, found...)}, found,
				func(*console.View) error { return nil })
		},
	}
	cmd.Flags().DurationVar(&patience, "patience", 5*time.Minute, "how long a transaction may be open")
	return cmd
}

// diagnose examines the store, and if it can be opened, what the nodes report.
func (c storeCommands) diagnose(ctx context.Context, patience time.Duration) (found []projection.Finding, err error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	switch {
	case c.file != "":
		if _, err := os.Stat(c.file); err != nil {
			return nil, misuse("--file: %w", err)
		}
		found, err = sqlitestore.Diagnose(ctx, c.file, sqlitestore.Options{})
		if err != nil {
			return nil, err
		}
	case c.url() != "":
		found, err = pgstore.Diagnose(ctx, c.url(), pgstore.Options{Schema: c.schema, SessionDSN: c.sessionURL},
			pgstore.DiagnoseOptions{Patience: patience})
		if err != nil {
			return nil, err
		}
	}
	reported, err := c.reported(ctx)
	found = append(found, reported...)
	if len(found) > 0 {
		return found, nil // they say why the store cannot be used
	}
	return found, err
}

// reported opens the store, and returns what the nodes report.
func (c storeCommands) reported(ctx context.Context) ([]projection.Finding, error) {
	s, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var summary admin.Summary
	err = withAdmin(s, func(a *admin.Admin) (err error) {
		summary, err = a.Summary(ctx)
		return err
	})
	return summary.Findings(), err
}

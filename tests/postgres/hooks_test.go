package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// What a host's pool sets, which none of the library's own statements may depend on.
var hostsSettings = map[string]string{
	"bounds":  "set statement_timeout = '19s'; set lock_timeout = '19s'; set idle_session_timeout = '19s'; set idle_in_transaction_session_timeout = '19s'",
	"path":    "set search_path = ''",
	"formats": "set datestyle = 'German'; set intervalstyle = 'sql_standard'; set timezone = 'Asia/Kathmandu'; set bytea_output = 'escape'; set extra_float_digits = -15; set array_nulls = off",
	"planner": "set enable_indexscan = off; set enable_bitmapscan = off; set plan_cache_mode = 'force_generic_plan'; set jit_above_cost = 0; set transform_null_equals = on",
	"commits": "set synchronous_commit = off; set default_transaction_deferrable = on; set row_security = off; set check_function_bodies = off",
	"noise":   "set client_min_messages = debug5; set log_statement = 'none'; set quote_all_identifiers = on",
}

func TestProjectionsRunWhateverTheHooksOfThePoolSet(t *testing.T) {
	t.Parallel()
	for name, sql := range hostsSettings {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t, pgtest.Database(t))
			b.use(b.open(b.dsn, func(config *pgxpool.Config) {
				config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
					_, err := conn.Exec(ctx, sql)
					return err
				}
				config.MaxConns = 4
			}, pgstore.Options{TenantSetup: []pgstore.TenantStep{
				func(ctx context.Context, tx pgx.Tx, tenant string) error {
					if tenant == "default" {
						return nil
					}
					return pgstore.TenantSQL(createTotals)(ctx, tx, tenant)
				},
			}}))
			b.Must(b.store.Migrate(b.Ctx))
			bounded := millrace.Projection{Name: "bounded", Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, _ []event.Envelope) error {
				var bounds string
				err := pg(tx).QueryRow(ctx, `select concat_ws(' ', current_setting('statement_timeout'), current_setting('lock_timeout'),
					current_setting('idle_in_transaction_session_timeout'))`).Scan(&bounds)
				if err == nil && strings.Contains(bounds, "19s") {
					t.Errorf("a batch has the bounds of the host's statements: %s", bounds)
				}
				return err
			})}
			forNamed := millrace.Projection{Name: "totals", Handler: totals.Handler}
			rt := b.Runtime(millrace.Config{Tenants: []string{"acme"}}, bounded, forNamed)
			acme := b.orderOf("acme", "30.00")
			for _, want := range []string{"30.00", "42.50"} {
				b.RunUntilIdle(rt)
				if total := b.totalOf(acme); total != want {
					t.Errorf("the total is %s, want %s", total, want)
				}
				b.orderOf("acme", "12.50")
			}
		})
	}
}

// PostgreSQL 17 can bound a whole transaction. That bound of a role or a DSN is not a handler's deadline.
func TestTransactionTimeoutOfTheSessionBoundsNoHandler(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	if value[int](b, "select current_setting('server_version_num')::int") < 170000 {
		t.Skip("needs PostgreSQL 17 or newer")
	}
	store := b.open(kit.WithSetting(t, b.dsn, "transaction_timeout", "1000"), nil, pgstore.Options{})
	b.Append("a", 3)
	rt := b.Runtime(millrace.Config{Store: store}, millrace.Projection{Name: "p", Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
		kit.Pass(ctx, 1500*time.Millisecond)
		return tx.Record(ctx, "p", events...)
	})})
	ctx, cancel := context.WithTimeout(b.Ctx, 30*time.Second)
	defer cancel()
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		t.Error(err)
	}
	b.Verify("p")
}

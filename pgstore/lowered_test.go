package pgstore

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
)

// afterConnect makes a pool whose hook sends this SQL.
func afterConnect(sql string) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) {
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, sql)
			return err
		}
	}
}

// withRoles makes a database whose roles millrace_app and millrace_owner, who is in it, may create schemas and tables.
func withRoles(t testing.TB) (dsn string) {
	t.Helper()
	dsn = pgtest.Database(t)
	host := openStore(t, dsn, Options{})
	mustExec(t, host, `do $$ begin
		if to_regrole('millrace_owner') is null then create role millrace_owner; end if;
		if to_regrole('millrace_app') is null then create role millrace_app; end if;
		grant millrace_owner to millrace_app;
		execute format('grant create on database %I to millrace_app, millrace_owner', current_database());
		grant create on schema public to millrace_app, millrace_owner;
		exception when duplicate_object or unique_violation then null; end $$`)
	return dsn
}

// as reports who a statement is executed as: session user, current user.
func as(ctx context.Context, q interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}) string {
	var who string
	if err := q.QueryRow(ctx, "select session_user || ' as ' || current_user").Scan(&who); err != nil {
		return err.Error()
	}
	return who
}

func TestConnectionThatAHookLoweredIsNotRaisedByBatches(t *testing.T) {
	for hook, want := range map[string]string{
		"set session authorization millrace_app":                          "millrace_app as millrace_app",
		"set session authorization millrace_app; set role millrace_owner": "millrace_app as millrace_owner",
		"set role millrace_owner":                                         "postgres as millrace_owner",
		// Only a superuser may set it: it has to be put back before the session is lowered.
		"set deadlock_timeout = '7s'; set work_mem = '5MB'; set session authorization millrace_app": "millrace_app as millrace_app",
	} {
		t.Run(hook, func(t *testing.T) {
			store := migrated(t, openStore(t, withRoles(t), Options{}, connections(1), afterConnect(hook)))
			makeModel(t, store)
			before := sessionState(t, store)
			for name, then := range map[string]func(ctx context.Context, tx pgx.Tx) error{
				"nothing":                     sends("select 1"),
				"an error":                    sends("select 1/0"),
				"a panic":                     func(context.Context, pgx.Tx) error { panic("on purpose") },
				"its own role":                sends("set local role millrace_owner"),
				"raised by DO":                sends("do $$ begin execute 'reset session authorization'; execute 'reset role'; end $$"),
				"raised by DO, then an error": sends("do $$ begin execute 'reset session authorization'; execute 'reset role'; end $$; select 1/0"),
				"another role by DO":          sends("do $$ begin execute 'set role millrace_owner'; execute 'set work_mem = 77'; end $$"),
				"raised behind it":            sendsRaw("reset session authorization; set deadlock_timeout = '77s'"),
				"locally another user":        sendsRaw("set local session authorization millrace_owner"),
			} {
				mustAppend(t, store.Tenant, "s", Any, someEvents(1)...)
				if err := claimAs(t, store, projection.DefaultTenant).apply(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
					if who := as(ctx, tx); who != want {
						t.Errorf("before %s: the handler runs as %s, want %s", name, who, want)
					}
					return errors.Join(write(ctx, tx, events), then(ctx, tx))
				}, ApplyOptions{}); err != nil {
					wantClass(t, err, projection.HandlerFault)
				}
				if who := as(testContext(t), store.pool); who != want {
					t.Errorf("after %s: the host's query runs as %s, want %s", name, who, want)
				}
				sameSession(t, store, name, before)
				if after := sessionState(t, store); after["pid"] != before["pid"] {
					t.Errorf("%s cost the connection", name)
					before = after
				}
			}
		})
	}
}

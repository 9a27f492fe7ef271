package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
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

// roles is held while roles are made: they belong to the whole server, and tests that run beside each other make the
// same.
var roles sync.Mutex

// withRoles makes a database whose roles millrace_app and millrace_owner, who is in it, may create schemas and tables.
func withRoles(t testing.TB) (dsn string) {
	t.Helper()
	dsn = pgtest.Database(t)
	host := openStore(t, dsn, Options{})
	roles.Lock()
	defer roles.Unlock()
	mustExec(t, host, `do $$ begin
		if to_regrole('millrace_owner') is null then create role millrace_owner; end if;
		if to_regrole('millrace_app') is null then create role millrace_app; end if;
		grant millrace_owner to millrace_app;
		execute format('grant create on database %I to millrace_app, millrace_owner', current_database());
		grant create on schema public to millrace_app, millrace_owner; end $$`)
	return dsn
}

// as reports the session user and the current user of a statement.
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
	t.Parallel()
	for hook, want := range map[string]string{
		"set session authorization millrace_app":                          "millrace_app as millrace_app",
		"set session authorization millrace_app; set role millrace_owner": "millrace_app as millrace_owner",
		"set role millrace_owner":                                         "postgres as millrace_owner",
		// Only a superuser may set it, so it must be restored before the session is lowered.
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
				mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
				if err := claimAs(t, store, projection.DefaultTenant).apply(func(ctx context.Context,
					tx pgx.Tx, events []event.Envelope) error {
					if who := as(ctx, tx); who != want {
						t.Errorf("before %s: the handler runs as %s, want %s", name, who, want)
					}
					return errors.Join(write(ctx, tx, events), then(ctx, tx))
				}, engine.ApplyOptions{}); err != nil {
					wantClass(t, err, faults.Handler)
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

// ofOwner makes a pool that logs in as a role without rights of its own. Its hook switches to the role that has the
// rights.
func ofOwner(t testing.TB) (dsn string, login func(*pgxpool.Config)) {
	t.Helper()
	dsn = withRoles(t)
	store := openStore(t, dsn, Options{})
	roles.Lock()
	defer roles.Unlock()
	mustExec(t, store, `do $$ begin
		if to_regrole('millrace_login') is null then create role millrace_login login noinherit password 'secret'; end if;
		grant millrace_owner to millrace_login; end $$`)
	return dsn, func(config *pgxpool.Config) {
		config.ConnConfig.User, config.ConnConfig.Password = "millrace_login", "secret"
	}
}

func TestSessionConnectionIsSetUpByTheHooksOfThePool(t *testing.T) {
	t.Parallel()
	setRole := func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "set role millrace_owner")
		return err
	}
	for name, hook := range map[string]func(*pgxpool.Config){
		"AfterConnect": func(config *pgxpool.Config) { config.AfterConnect = setRole },
		"PrepareConn": func(config *pgxpool.Config) {
			config.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
				return true, setRole(ctx, conn)
			}
		},
		"BeforeAcquire": func(config *pgxpool.Config) {
			//lint:ignore SA1019 pools of hosts may still have it
			config.BeforeAcquire = func(ctx context.Context, conn *pgx.Conn) bool { return setRole(ctx, conn) == nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			dsn, login := ofOwner(t)
			store := migrated(t, openStore(t, dsn, Options{}, login, hook))
			s := must(connect(t, store, aNode()))(t)
			if who := as(testContext(t), s.(*nodeSession).conn); who != "millrace_login as millrace_owner" {
				t.Errorf("the session is that of %s", who)
			}
			if err := s.Heartbeat(testContext(t), &engine.NodeSummary{}); err != nil {
				t.Error(err)
			}
			conn := must(store.dial(testContext(t), ""))(t)
			defer func() { _ = conn.Close(testContext(t)) }()
			if who := as(testContext(t), conn); who != "millrace_login as millrace_owner" {
				t.Errorf("another connection is that of %s", who)
			}
		})
	}
}

func TestHookOfThePoolSetsUpTheConnectionOfSessionDSN(t *testing.T) {
	t.Parallel()
	dsn, login := ofOwner(t)
	hook := afterConnect("set role millrace_owner")
	pool := migrated(t, openStore(t, dsn, Options{}, login, hook)).pool.Config().ConnConfig
	store := openStore(t, dsn,
		Options{SessionDSN: fmt.Sprintf("host=%s port=%d user=millrace_login password=secret dbname=%s",
			pool.Host, pool.Port, pool.Database)}, login, hook)
	s := must(connect(t, store, aNode()))(t)
	if who := as(testContext(t), s.(*nodeSession).conn); who != "millrace_login as millrace_owner" {
		t.Errorf("the session is that of %s", who)
	}
}

func TestHookThatRefusesAConnectionIsNamed(t *testing.T) {
	t.Parallel()
	refuse := errors.New("on purpose")
	for name, hook := range map[string]func(c *pgxpool.Config, refuses *bool){
		"on purpose": func(c *pgxpool.Config, refuses *bool) {
			c.AfterConnect = func(context.Context, *pgx.Conn) error {
				if *refuses {
					return refuse
				}
				return nil
			}
		},
		"refused the connection": func(c *pgxpool.Config, refuses *bool) {
			//lint:ignore SA1019 pools of hosts may still have it
			c.BeforeAcquire = func(context.Context, *pgx.Conn) bool { return !*refuses }
		},
	} {
		refuses := false
		store := newStore(t, func(c *pgxpool.Config) { hook(c, &refuses) })
		refuses = true
		if _, err := connect(t, store, aNode()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want %q", err, name)
		}
		refuses = false
	}
}

// What bounds the host's statements would end a session that is meant to last.
func TestSessionConnectionHasNoTimeoutsOfTheHost(t *testing.T) {
	t.Parallel()
	store := newStore(t,
		afterConnect("set statement_timeout = '19s'; set lock_timeout = '19s'; set idle_session_timeout = '19s'; "+
			"set idle_in_transaction_session_timeout = '19s'; set work_mem = '5MB'"))
	s := must(connect(t, store, aNode()))(t)
	for name, want := range map[string]string{"statement_timeout": "0", "lock_timeout": "0",
		"idle_session_timeout":                "0",
		"idle_in_transaction_session_timeout": "0", "default_transaction_read_only": "off", "work_mem": "5MB"} {
		if got := show(testContext(t), s.(*nodeSession).conn, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestSettingsThatAHookMakesForEachUseApply(t *testing.T) {
	t.Parallel()
	uses := 0
	store := onePool(t, func(config *pgxpool.Config) {
		config.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
			uses++
			_, err := conn.Exec(ctx, fmt.Sprintf("set app.who = 'use %d'; set work_mem = '%dMB'", uses, 10+uses))
			return true, err
		}
	})
	held := func(where string, q interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}) {
		t.Helper()
		var got string
		err := q.QueryRow(testContext(t),
			"select current_setting('app.who') || ', ' || current_setting('work_mem')").Scan(&got)
		if want := fmt.Sprintf("use %d, %dMB", uses, 10+uses); err != nil || got != want {
			t.Errorf("%s: %s, want %s: %v", where, got, want, err)
		}
	}
	for range 3 {
		mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
		for _, end := range []error{nil, errors.New("on purpose")} {
			err := claimAs(t, store, projection.DefaultTenant).apply(func(ctx context.Context,
				tx pgx.Tx, _ []event.Envelope) error {
				held("in a handler", tx)
				return end
			}, engine.ApplyOptions{})
			if !errors.Is(err, end) {
				t.Fatal(err)
			}
			held("in the host's query", store.pool)
			mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
		}
	}
}

func TestTimeoutsOfTheHostDoNotEndTransactionsOfTheStore(t *testing.T) {
	t.Parallel()
	store := newStore(t, afterConnect("set statement_timeout = '19s'; set lock_timeout = '19s'"))
	noError(t, store.durable(testContext(t), "list_peers", func(tx pgx.Tx) error {
		for _, name := range []string{"statement_timeout", "lock_timeout"} {
			if got := show(testContext(t), tx, name); got != "0" {
				t.Errorf("%s is %s, want 0", name, got)
			}
		}
		return nil
	}))
}

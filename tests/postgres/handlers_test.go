package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

type opened struct {
	Owner string `json:"owner"`
}

func (opened) EventType() string { return "opened" }

type deposited struct {
	Entries []struct {
		Amount int `json:"amount"`
	} `json:"entries"`
}

func (deposited) EventType() string { return "deposited" }

func TestTypedHandlersGetTheirEventsInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	var mu sync.Mutex
	var calls []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, fmt.Sprintf(format, args...))
	}
	rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Route(
		pgstore.On(func(_ context.Context, tx pgx.Tx, e event.Of[opened]) error {
			note("%d %s %v", e.Version, e.Body.Owner, tx != nil)
			return nil
		}),
		pgstore.OnBatch(func(_ context.Context, _ pgx.Tx, events []event.Of[deposited]) error {
			note("%d deposits from %d on", len(events), events[0].Version)
			return nil
		}),
	)})
	events := []event.Event{event.Untyped("opened", map[string]any{"owner": "Ada", "unknown": 1}),
		event.New(deposited{}), event.Untyped("other", nil),
		event.New(deposited{}), event.New(opened{"Bob"}), event.New(deposited{})}
	if _, err := b.store.Append(b.Ctx, "s", event.NoStream, events...); err != nil {
		t.Fatal(err)
	}
	b.RunUntilIdle(rt)
	if got, want := strings.Join(calls, "; "),
		"1 Ada true; 2 deposits from 2 on; 5 Bob true; 1 deposits from 6 on"; got != want {
		t.Errorf("called for %s, want %s", got, want)
	}
}

// An event that does not decode is parked at once, and the error names the path in its body. Other events are handled.
func TestBodyThatDoesNotDecodeIsParkedAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	entries := []map[string]any{{"amount": 1}, {"amount": "2"}}
	result, err := b.store.Append(b.Ctx, "s", event.Any, event.Untyped("deposited", map[string]any{"entries": entries}),
		event.New(deposited{}))
	b.Must(err)
	bad := result.Positions[0]
	var handled sync.Map
	count := func(name string, n int) {
		old, _ := handled.LoadOrStore(name, 0)
		handled.Store(name, old.(int)+n)
	}
	handlers := map[string]millrace.Handler{
		"one": pgstore.On(func(context.Context, pgx.Tx, event.Of[deposited]) error { count("one", 1); return nil }),
		"all": pgstore.OnBatch(func(_ context.Context, _ pgx.Tx, events []event.Of[deposited]) error {
			count("all", len(events))
			return nil
		}),
		"own": pgstore.Each(func(_ context.Context, _ pgx.Tx, e event.Envelope) error {
			_, err := event.As[deposited](e)
			if err == nil {
				count("own", 1)
			}
			return err
		}),
	}
	var projections []millrace.Projection
	for name, h := range handlers {
		projections = append(projections, millrace.Projection{Name: name, OnFailure: projection.ActionPark, Handler: h})
	}
	b.Idle(projections...)
	for name := range handlers {
		letters := b.DeadLettersOf(name)
		want := fmt.Sprintf(`decode event %d (deposited of stream "s") as postgres_test.deposited at entries[1].amount: `, bad)
		if len(letters) != 1 || letters[0].Position != bad || letters[0].Attempts != 1 ||
			!strings.Contains(letters[0].Error, want) {
			t.Errorf("%s: parked %+v, want %q", name, letters, want)
		}
		if n, _ := handled.Load(name); n != 1 {
			t.Errorf("%s: %v events were handled", name, n)
		}
	}
}

// hostsSettings are settings of a host's pool, on which no statement of the library may depend.
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
			bounded := millrace.Projection{Name: "bounded",
				Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, _ []event.Envelope) error {
					var bounds string
					err := pg(tx).QueryRow(ctx,
						`select concat_ws(' ', current_setting('statement_timeout'), current_setting('lock_timeout'),
					current_setting('idle_in_transaction_session_timeout'))`).Scan(&bounds)
					if err == nil && strings.Contains(bounds, "19s") {
						t.Errorf("a batch has the bounds of the host's statements: %s", bounds)
					}
					return err
				})}
			forNamed := millrace.Projection{Name: "totals", Handler: orderTotals.Handler}
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
	rt := b.Runtime(millrace.Config{Store: store},
		millrace.Projection{Name: "p",
			Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
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

func TestPoolOfOneWorks(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{}, "pool_max_conns", "1")
	rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Record("p"))},
		millrace.Projection{Name: "d", Handler: millrace.DeliverEach(kit.Freely)},
		millrace.Projection{Name: "q", Handler: b.Store.Batch(kit.Record("q")), Types: []string{"none"}},
		millrace.Projection{Name: "r", Handler: b.Store.Batch(kit.Record("r")), MaxEvents: 7})
	b.Append("a", 1000)
	b.Start(rt)
	last := b.Append("a", 1).Positions[0]
	for _, name := range []string{"p", "q", "r", "d"} {
		b.Reaches(rt, name, last)
	}
	b.Verify("p")
	b.Verify("r")
}

// A statement that fails ends the transaction, even if its error is swallowed.
func TestMiddlewareThatSwallowsAnErrorCannotCommitAFailedTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.Append("s", 3)
	swallows := func(next millrace.HandleFunc) millrace.HandleFunc {
		return func(ctx context.Context, events []event.Envelope) error { _ = next(ctx, events); return nil }
	}
	b.Idle(millrace.Projection{Name: "p", OnFailure: projection.ActionPark, Retry: kit.Soon(0),
		Middleware: []millrace.Middleware{swallows},
		Handler: b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			if e.Position == 2 {
				return tx.Exec(ctx, "select 1/0")
			}
			return tx.Record(ctx, "p", e)
		})})
	if letters := b.DeadLettersOf("p"); len(letters) != 1 || letters[0].Position != 2 ||
		!strings.Contains(letters[0].Error, "division by zero") {
		t.Errorf("%+v", letters)
	}
	b.Verify("p", 2)
}

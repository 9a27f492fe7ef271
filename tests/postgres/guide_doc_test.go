package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/millracetest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// The functions up to TestTotals are those of docs/guide.md, or what the tests of this file use beside them.

type OrderPlaced struct {
	Amount string `json:"amount"`
}

func (OrderPlaced) EventType() string { return "OrderPlaced" }

func placeOrder(ctx context.Context, dsn string) error {
	// for a file: sqlitestore.Open(ctx, "shop.db", sqlitestore.Options{})
	store, err := pgstore.Open(ctx, dsn, pgstore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil { // safe from many processes at once
		return err
	}
	_, err = store.Append(ctx, "order-1", event.NoStream, event.New(OrderPlaced{Amount: "30.00"}))
	return err
}

func openShop(ctx context.Context, dsn string) (*pgstore.Store, error) {
	store, err := pgstore.Open(ctx, dsn, pgstore.Options{
		SharedSchemas: []string{"extensions"},
		TenantSetup: []pgstore.TenantStep{
			pgstore.TenantSQL(`create table totals (stream text primary key, total numeric)`),
			pgstore.TenantSQL(`alter table totals add currency text`), // came with the second release
		},
	})
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx); err != nil { // brings every tenant to the last step
		store.Close()
		return nil, err
	}
	return store, nil
}

func totalOf(ctx context.Context, store *pgstore.Store, customer, stream string) (total string, err error) {
	tenant, err := store.CreateTenant(ctx, customer) // events and all steps, or nothing
	if err != nil {
		return "", err
	}
	err = tenant.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, `select total::text from totals where stream = $1`, stream).Scan(&total)
	})
	return total, err
}

type OrderPaid struct {
	Customer string
	Amount   int
}

func (OrderPaid) EventType() string { return "OrderPaid" }

func orderPaid(ctx context.Context, tx pgx.Tx, e event.Of[OrderPaid]) error {
	_, err := tx.Exec(ctx, `update orders set paid = true where stream = $1`, e.Stream)
	return err
}

func orderPlaced(ctx context.Context, tx pgx.Tx, e event.Of[OrderPlaced]) error {
	_, err := tx.Exec(ctx, `insert into orders values ($1, $2)`, e.Stream, e.Body.Amount)
	return err
}

func orders() millrace.Projection {
	return millrace.Projection{Name: "orders", Handler: pgstore.Route(pgstore.On(orderPlaced), pgstore.On(orderPaid))}
}

func count(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
	types := make([]string, len(events))
	for i, e := range events {
		types[i] = e.Type
	}
	_, err := tx.Exec(ctx, `insert into counts (type, n) select t, count(*) from unnest($1::text[]) t group by t
		on conflict (type) do update set n = counts.n + excluded.n`, types)
	return err
}

func queueCount(_ context.Context, q pgstore.Queue, events []event.Envelope) error {
	types := make([]string, len(events))
	for i, e := range events {
		types[i] = e.Type
	}
	q.Exec(`insert into counts (type, n) select t, count(*) from unnest($1::text[]) t group by t
		on conflict (type) do update set n = counts.n + excluded.n`, types)
	return nil
}

func counts() millrace.Projection {
	return millrace.Projection{Name: "counts", Handler: pgstore.Queued(queueCount)}
}

func runOrders(ctx context.Context, store *pgstore.Store) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	rt, err := millrace.New(millrace.Config{Store: store})
	if err != nil {
		return err
	}
	if err := rt.Register(orders()); err != nil {
		return err
	}
	return rt.Run(ctx) // nil after an orderly end
}

func look(ctx context.Context, a *admin.Admin) error {
	summary, err := a.Summary(ctx)
	if err != nil {
		return err // the database cannot be reached
	}
	for _, f := range summary.Findings() { // parked events, failed projections, projections without a node, …
		fmt.Println(f.Check, f.Problem, f.Advice)
	}
	failed, err := a.Status(ctx, admin.StatusFilter{States: []admin.State{admin.StateFailed}})
	for _, p := range failed.Projections {
		fmt.Println(p.ID, p.Reason)
	}
	return err
}

func migrations() (sql []string, err error) {
	control, err := pgstore.ControlMigrations("millrace", 0) // after version 0: all
	if err != nil {
		return nil, err
	}
	initial, err := pgstore.TenantMigrations("millrace", "default", 0) // and so for each tenant
	return []string{control, initial}, err
}

func totals() millrace.Projection {
	return millrace.Projection{Name: "totals",
		Handler: pgstore.On(func(ctx context.Context, tx pgx.Tx, e event.Of[OrderPaid]) error {
			_, err := tx.Exec(ctx, `insert into totals values ($1, $2)
			on conflict (customer) do update set total = totals.total + excluded.total`, e.Body.Customer, e.Body.Amount)
			return err
		})}
}

func TestTotals(t *testing.T) {
	k := millracetest.Postgres(t, "", "create table totals (customer text primary key, total integer)")
	k.Given("order-1", event.New(OrderPaid{"Ada", 30}), event.New(OrderPaid{"Ada", 12}))
	k.When(totals())
	k.Then("select customer, total from totals order by 1", "Ada | 42")
}

func TestProjectionsOfTheGuide(t *testing.T) {
	onRoles(t, func(t *testing.T, _ *pgstore.Store, b *bundle) {
		b.Must(placeOrder(b.Ctx, b.dsn))
		k := millracetest.New(t, b.store)
		k.Given("order-1", event.New(OrderPaid{"Ada", 30}))
		k.When(orders(), counts(), millrace.Projection{Name: "counts again", Handler: pgstore.Batch(count)})
		k.Then("select stream, amount, paid::text from orders", "order-1 | 30.00 | true")
		k.Then("select type, n from counts order by type", "OrderPaid | 2", "OrderPlaced | 2")

		a, err := admin.New(b.store)
		b.Must(err)
		if err := look(b.Ctx, a); err != nil {
			t.Error(err)
		}
	}, ordersTable, "create table counts (type text primary key, n integer)")
}

const ordersTable = "create table orders (stream text primary key, amount text, paid boolean)"

// A tenant is created by the role that owns the schemas. Then every role finds it.
func TestTenantsOfTheGuide(t *testing.T) {
	onRoles(t, func(t *testing.T, owner *pgstore.Store, b *bundle) {
		for _, dsn := range []string{owner.Pool().Config().ConnString(), b.dsn} {
			store, err := openShop(b.Ctx, dsn)
			b.Must(err)
			defer store.Close()
			if _, err := totalOf(b.Ctx, store, "acme", "order-1"); !errors.Is(err, pgx.ErrNoRows) {
				t.Errorf("total of an order that does not exist: %v", err)
			}
		}
	})
}

// The owner migrates by another tool. The role that runs may use what the tool has made.
func TestMigrationsOfTheGuide(t *testing.T) {
	t.Parallel()
	ownerDSN, appDSN := kit.RolesOf(t, pgtest.Database(t))
	b := newBundle(t, appDSN)
	scripts, err := migrations()
	b.Must(err)
	conn, err := pgx.Connect(b.Ctx, ownerDSN)
	b.Must(err)
	defer func() { _ = conn.Close(b.Ctx) }()
	for _, script := range scripts {
		_, err := conn.PgConn().Exec(b.Ctx, "begin;"+script+";commit").ReadAll()
		b.Must(err)
	}
	b.Must(placeOrder(b.Ctx, b.dsn))
	if !strings.Contains(scripts[0], "millrace") {
		t.Errorf("the migrations do not name their schema:\n%s", scripts[0])
	}
}

func TestProcessOfTheGuideRunsUntilItsContextEnds(t *testing.T) {
	onRoles(t, func(t *testing.T, _ *pgstore.Store, b *bundle) {
		placed, err := b.store.Append(b.Ctx, "order-1", event.NoStream, event.New(OrderPlaced{Amount: "30.00"}))
		b.Must(err)
		ended := make(chan error, 1)
		ctx, stop := context.WithCancel(b.Ctx)
		go func() { ended <- runOrders(ctx, b.store) }()
		a, err := admin.New(b.store)
		b.Must(err)
		orders := millrace.ProjectionID{Name: "orders"}
		b.Eventually("the projection begins", func() bool {
			return !errors.Is(a.WaitFor(b.Ctx, orders, placed.Positions[0]), projection.ErrUnknownProjection)
		})
		b.Must(a.WaitFor(b.Ctx, orders, placed.Positions[0]))
		stop()
		b.Must(<-ended)
	}, ordersTable)
}

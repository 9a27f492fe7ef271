package millracetest_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/millracetest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
)

type OrderPaid struct {
	Customer string
	Amount   int
}

func (OrderPaid) EventType() string { return "OrderPaid" }

const addOrder = "insert into totals values ($1, $2) on conflict (customer) do update set total = totals.total + excluded.total"

// totals is the projection of docs/testing.md.
func totals() millrace.Projection {
	return millrace.Projection{
		Name: "totals",
		Handler: sqlitestore.On(func(ctx context.Context, tx *sql.Tx, e event.Of[OrderPaid]) error {
			_, err := tx.ExecContext(ctx, addOrder, e.Body.Customer, e.Body.Amount)
			return err
		}),
		Reset: sqlitestore.Hook(func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "delete from totals")
			return err
		}),
	}
}

func totalsOnPostgres() millrace.Projection {
	return millrace.Projection{Name: "totals",
		Handler: pgstore.On(func(ctx context.Context, tx pgx.Tx, e event.Of[OrderPaid]) error {
			_, err := tx.Exec(ctx, addOrder, e.Body.Customer, e.Body.Amount)
			return err
		})}
}

// The tests of docs/testing.md.

func TestTotals(t *testing.T) {
	k := millracetest.SQLite(t, "create table totals (customer text primary key, total integer)")
	k.Given("order-1", event.New(OrderPaid{"Ada", 30}), event.New(OrderPaid{"Ada", 12}))
	k.When(totals())
	k.Then("select customer, total from totals order by 1", "Ada | 42")
}

func TestTotalsAreRepeatable(t *testing.T) {
	millracetest.Repeatable(t, givenOrders, totals, "select customer, total from totals order by 1")
}

func givenOrders(t testing.TB) *millracetest.Kit {
	k := millracetest.SQLite(t, "create table totals (customer text primary key, total integer)")
	k.Given("order-1", event.New(OrderPaid{"Ada", 30}), event.New(OrderPaid{"Bob", 7}), event.New(OrderPaid{"Ada", 12}))
	return k
}

func TestTotalsOfTenants(t *testing.T) {
	totals := totalsOnPostgres
	const table = "create table totals (customer text primary key, total integer)"
	k := millracetest.Postgres(t, "")
	acme, globex := k.Tenant("acme", table), k.Tenant("globex", table)
	acme.Given("order-1", event.New(OrderPaid{"Ada", 30}))
	globex.Given("order-1", event.New(OrderPaid{"Ada", 12}))
	k.When(totals())
	acme.Then("select customer, total from totals order by 1", "Ada | 30")
	globex.Then("select customer, total from totals order by 1", "Ada | 12")
}

func TestTotalsAreRebuilt(t *testing.T) {
	k := givenOrders(t)
	k.When(totals())
	k.Rebuild(totals())
	k.Then("select customer, total from totals order by 1", "Ada | 42", "Bob | 7")
}

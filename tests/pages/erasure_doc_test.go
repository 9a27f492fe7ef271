package pages_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
	"github.com/millrace-go/millrace/tests/kit"
)

// The types and functions up to eraseCustomer are those of docs/erasure.md.

// CustomerErased is appended to the stream of a customer before the stream is erased.
type CustomerErased struct{}

func (CustomerErased) EventType() string { return "CustomerErased" }

func customerErased(_ context.Context, q pgstore.Queue, e event.Of[CustomerErased]) error {
	q.Exec("delete from customers where id = $1", e.Stream)
	return nil
}

// Customers is a store, a *pgstore.Store or a *sqlitestore.Store.
type Customers interface {
	millrace.Store
	event.Appender
	EraseStream(ctx context.Context, stream, reason string) (event.Erasure, error)
}

// eraseCustomer runs as the role that owns the tables. readModels are the projections that handle CustomerErased.
func eraseCustomer(ctx context.Context, store Customers, readModels []string, customer,
	reason string) (event.Erasure, error) {
	last, err := store.Append(ctx, customer, event.Any.WithKey("erase "+customer), event.New(CustomerErased{}))
	if err != nil {
		return event.Erasure{}, err
	}
	a, err := admin.New(store)
	if err != nil {
		return event.Erasure{}, err
	}
	for _, name := range readModels {
		if err := a.WaitFor(ctx, millrace.ProjectionID{Name: name}, last.Last()); err != nil {
			return event.Erasure{}, err
		}
	}
	return store.EraseStream(ctx, customer, reason)
}

var _, _ Customers = (*pgstore.Store)(nil), (*sqlitestore.Store)(nil)

type CustomerNamed struct {
	Name string `json:"name"`
}

func (CustomerNamed) EventType() string { return "CustomerNamed" }

func customerNamed(_ context.Context, q pgstore.Queue, e event.Of[CustomerNamed]) error {
	q.Exec("insert into customers (id, name) values ($1, $2) on conflict (id) do update set name = excluded.name",
		e.Stream, e.Body.Name)
	return nil
}

// CustomerSeen is in the stream of a visit.
type CustomerSeen struct {
	Customer string `json:"customer"`
}

func (CustomerSeen) EventType() string { return "CustomerSeen" }

func customerSeen(_ context.Context, q pgstore.Queue, e event.Of[CustomerSeen]) error {
	q.Exec("insert into customers (id) values ($1) on conflict (id) do nothing", e.Body.Customer)
	return nil
}

func greeted(_ context.Context, q pgstore.Queue, e event.Of[CustomerNamed]) error {
	q.Exec("insert into greetings (position, text) values ($1, $2)", e.Position, "Dear "+e.Body.Name)
	return nil
}

// clinic is a store whose nodes own nothing, and the same store as its owner opens it.
type clinic struct {
	*kit.Bundle
	owner                kit.Store
	customers, greetings millrace.Projection
}

// onClinics runs a test with a store of each kind.
func onClinics(t *testing.T, test func(t *testing.T, c clinic)) {
	t.Run("pgstore", func(t *testing.T) {
		t.Parallel()
		asOwner, asApp := kit.RolesOf(t, pgtest.Database(t))
		owner, err := kit.Postgres.Open(t.Context(), asOwner, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(owner.Close)
		if err := owner.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		b := kit.Postgres.At(t, asApp)
		b.Must(owner.Prepare(b.Ctx))
		c := clinic{b, owner,
			millrace.Projection{Name: "customers",
				Handler: pgstore.Route(pgstore.OnQueued(customerNamed), pgstore.OnQueued(customerSeen),
					pgstore.OnQueued(customerErased, event.IncludeRedacted)),
				Reset: pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "delete from customers")
					return err
				})},
			millrace.Projection{Name: "greetings", Handler: pgstore.OnQueued(greeted),
				Reset: pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "delete from greetings")
					return err
				})}}
		test(t, c.withTables())
	})
	t.Run("sqlitestore", func(t *testing.T) {
		t.Parallel()
		b := kit.SQLite.New(t)
		c := clinic{b, b.Store,
			millrace.Projection{Name: "customers",
				Handler: sqlitestore.Route(sqlitestore.OnQueued(customerNamed), sqlitestore.OnQueued(customerSeen),
					sqlitestore.OnQueued(customerErased, event.IncludeRedacted)),
				Reset: sqlitestore.Hook(func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, "delete from customers")
					return err
				})},
			millrace.Projection{Name: "greetings", Handler: sqlitestore.OnQueued(greeted),
				Reset: sqlitestore.Hook(func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, "delete from greetings")
					return err
				})}}
		test(t, c.withTables())
	})
}

func (c clinic) withTables() clinic {
	c.Must(c.owner.InTx(c.Ctx, func(ctx context.Context, tx kit.Tx) error {
		if err := tx.Exec(ctx, "create table customers (id text primary key, name text)"); err != nil {
			return err
		}
		return tx.Exec(ctx, "create table greetings (position bigint primary key, text text)")
	}))
	return c
}

func (c clinic) has(customers, greetings int64) {
	c.T.Helper()
	rows, err := c.owner.Numbers(c.Ctx, "select (select count(*) from customers), (select count(*) from greetings)")
	if err != nil || !slices.Equal(rows, []int64{customers, greetings}) {
		c.T.Errorf("customers and greetings: %v, %v, want %d and %d", rows, err, customers, greetings)
	}
}

// A customer is erased while the nodes run: one projection deletes its rows, and the other one, which is named, is
// rebuilt.
func TestCustomerIsErasedAsThePageSays(t *testing.T) {
	t.Parallel()
	onClinics(t, func(t *testing.T, c clinic) {
		ada, err := c.Store.Alias(c.Ctx, "ada@example.org")
		c.Must(err)
		for range 2 {
			c.MustAppend(c.Store, ada, event.Any, event.New(CustomerNamed{"Ada"}))
			c.MustAppend(c.Store, "bob", event.Any, event.New(CustomerNamed{"Bob"}))
		}
		rt := c.Running(millrace.Config{}, c.customers, c.greetings)
		c.Reaches(rt, "customers", 4)
		c.Reaches(rt, "greetings", 4)
		c.has(2, 4)

		erased, err := eraseCustomer(c.Ctx, c.owner, []string{"customers"}, ada, "request 4711")
		c.Must(err)
		if erased.Events != 3 || !slices.Equal(erased.Applied, []string{"customers", "greetings"}) ||
			!slices.Equal(erased.Types, []string{"CustomerErased", "CustomerNamed"}) {
			t.Errorf("%+v", erased)
		}
		c.has(1, 4)
		c.Must(rt.Rebuild(c.Ctx, millrace.ProjectionID{Name: "greetings"}, admin.ResetOptions{}))
		c.Reaches(rt, "greetings", 5)
		c.has(1, 2)
		for e, err := range c.Store.ReadStream(c.Ctx, ada, 1) {
			if err != nil || !e.Redacted() {
				t.Errorf("%+v, %v", e, err)
			}
		}
		if again, err := c.Store.Alias(c.Ctx, "ada@example.org"); err != nil || again == ada {
			t.Errorf("the alias is %q, %v", again, err)
		}
	})
}

// A rebuild after the erasure forgets the person again: CustomerErased is redacted with the stream, and other streams
// name the customer.
func TestRebuildAfterAnErasureForgetsThePersonAgain(t *testing.T) {
	t.Parallel()
	onClinics(t, func(t *testing.T, c clinic) {
		c.MustAppend(c.Store, "visit-1", event.Any, event.New(CustomerSeen{Customer: "ada"}))
		c.MustAppend(c.Store, "ada", event.Any, event.New(CustomerNamed{"Ada"}))
		rt := c.Running(millrace.Config{}, c.customers)
		c.Reaches(rt, "customers", 2)
		_, err := eraseCustomer(c.Ctx, c.owner, []string{"customers"}, "ada", "request 4711")
		c.Must(err)
		c.has(0, 0)
		c.Must(rt.Rebuild(c.Ctx, millrace.ProjectionID{Name: "customers"}, admin.ResetOptions{}))
		c.Reaches(rt, "customers", 3)
		c.has(0, 0)
	})
}

// The role that runs may not erase, and may not change the record. Nothing is redacted then, and nothing stops.
func TestRoleThatRunsErasesNothing(t *testing.T) {
	t.Parallel()
	onClinics(t, func(t *testing.T, c clinic) {
		if c.owner == c.Store {
			t.Skip("a file has no roles")
		}
		c.MustAppend(c.Store, "ada", event.Any, event.New(CustomerNamed{"Ada"}))
		refused := func() {
			t.Helper()
			_, err := c.Store.EraseStream(c.Ctx, "ada", "request 4711")
			if err == nil || !strings.Contains(err.Error(), "run this as the role") {
				t.Error(err)
			}
		}
		refused()
		_, err := c.owner.EraseStream(c.Ctx, "ada", "request 4711")
		c.Must(err)
		c.MustAppend(c.Store, "ada", event.Any, event.New(CustomerNamed{"Ada"}))
		refused() // the table of erasures exists
		for _, change := range []string{"insert into millrace.erasures (tenant, reason, requested_at) values ('default', 'r', now())",
			"update millrace.erasures set reason = 'r'", "delete from millrace.erasures"} {
			err := c.Store.InTx(c.Ctx, func(ctx context.Context, tx kit.Tx) error { return tx.Exec(ctx, change) })
			if err == nil || !strings.Contains(err.Error(), "42501") {
				t.Errorf("%s: %v", change, err)
			}
		}
		if all, err := c.Store.Erasures(c.Ctx); err != nil || len(all) != 1 {
			t.Errorf("%+v, %v", all, err)
		}
		rt := c.Running(millrace.Config{}, c.customers)
		c.Reaches(rt, "customers", 2)
		c.has(1, 0)
	})
}

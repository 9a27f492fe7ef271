package pages_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/millracetest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// The types and functions up to checkout are those of docs/sagas.md.

// The events of an order. All of them are in its stream.
type (
	OrderPlaced struct {
		Customer string
		Cents    int64
	}
	PaymentRequested struct{ Cents int64 }
	Paid             struct{ Key string }
	PaymentDeclined  struct{}
	OrderConfirmed   struct{}
	OrderCancelled   struct{ Reason string }
	RefundRequested  struct{ PaymentKey string }
)

func (OrderPlaced) EventType() string      { return "OrderPlaced" }
func (PaymentRequested) EventType() string { return "PaymentRequested" }
func (Paid) EventType() string             { return "Paid" }
func (PaymentDeclined) EventType() string  { return "PaymentDeclined" }
func (OrderConfirmed) EventType() string   { return "OrderConfirmed" }
func (OrderCancelled) EventType() string   { return "OrderCancelled" }
func (RefundRequested) EventType() string  { return "RefundRequested" }

// A decision takes the state of an order and an event of it. It returns the next state, and the event that follows, if
// there is one. An event that changes nothing leaves the state as it is.
type decision[T event.Typed] func(state string, body T) (next string, then event.Event)

func onPlaced(state string, placed OrderPlaced) (string, event.Event) {
	if state == "" {
		return "paying", event.New(PaymentRequested{Cents: placed.Cents})
	}
	return state, event.Event{}
}

func onPaid(state string, paid Paid) (string, event.Event) {
	switch state {
	case "paying":
		return "confirmed", event.New(OrderConfirmed{})
	case "cancelled": // by the customer, while the payment was made
		return "refunding", event.New(RefundRequested{PaymentKey: paid.Key})
	}
	return state, event.Event{}
}

func onDeclined(state string, _ PaymentDeclined) (string, event.Event) {
	if state == "paying" {
		return "cancelled", event.New(OrderCancelled{Reason: "the payment was declined"})
	}
	return state, event.Event{}
}

func onCancelled(state string, _ OrderCancelled) (string, event.Event) {
	if state == "paying" {
		return "cancelled", event.Event{}
	}
	return state, event.Event{}
}

// follow makes the handler of a decision. The next state, the event that follows and the checkpoint commit together, or
// not at all.
func follow[T event.Typed](store *pgstore.Store, decide decision[T]) pgstore.Handler {
	return pgstore.On(func(ctx context.Context, tx pgx.Tx, e event.Of[T]) error {
		var state string
		err := tx.QueryRow(ctx, `select state from checkouts where order_id = $1`, e.Stream).Scan(&state)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		next, then := decide(state, e.Body)
		if next == state {
			return nil
		}
		_, err = tx.Exec(ctx, `insert into checkouts (order_id, state) values ($1, $2)
			on conflict (order_id) do update set state = excluded.state`, e.Stream, next)
		if err != nil || then.Type == "" {
			return err
		}
		name, _ := millrace.TenantFrom(ctx)
		tenant, err := store.ForTenant(name)
		if err != nil {
			return err
		}
		_, err = tenant.AppendTx(ctx, tx, e.Stream, event.Any, then) // the batch wakes
		return err
	}, event.Strict)
}

func checkout(store *pgstore.Store) millrace.Projection {
	return millrace.Projection{
		Name: "checkout",
		Handler: pgstore.Route(follow(store, onPlaced), follow(store, onPaid), follow(store, onDeclined),
			follow(store, onCancelled)),
		MaxEvents: 50,
	}
}

// Pay asks the payment provider. The provider answers a repeat with the same key as before, and takes the money once.
type Pay func(ctx context.Context, key string, cents int64) (accepted bool, err error)

func charge[T event.Appender](tenantOf func(name string) (T, error), pay Pay) millrace.Projection {
	return millrace.Projection{
		Name: "charge",
		Handler: millrace.DeliverOn(func(ctx context.Context, e millrace.DeliveredOf[PaymentRequested]) error {
			accepted, err := pay(ctx, e.Token, e.Body.Cents)
			if err != nil {
				return projection.Retry(err) // the provider cannot be reached at the moment
			}
			answer := event.New(PaymentDeclined{})
			if accepted {
				answer = event.New(Paid{Key: e.Token})
			}
			name, _ := millrace.TenantFrom(ctx)
			tenant, err := tenantOf(name)
			if err != nil {
				return err
			}
			_, err = tenant.Append(ctx, e.Stream, event.Any.WithKey(e.Token), answer)
			return err
		}, event.Strict),
	}
}

func register(rt *millrace.Runtime, store *pgstore.Store, pay Pay) error {
	return errors.Join(rt.Register(checkout(store)), rt.Register(charge(store.ForTenant, pay)))
}

// followInFile is follow for a store in a file, in which tenants share the table.
func followInFile[T event.Typed](store *sqlitestore.Store, decide decision[T]) sqlitestore.Handler {
	return sqlitestore.On(func(ctx context.Context, tx *sql.Tx, e event.Of[T]) error {
		name, _ := millrace.TenantFrom(ctx)
		var state string
		err := tx.QueryRowContext(ctx, `select state from checkouts where tenant = $1 and order_id = $2`, name,
			e.Stream).Scan(&state)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		next, then := decide(state, e.Body)
		if next == state {
			return nil
		}
		_, err = tx.ExecContext(ctx, `insert into checkouts (tenant, order_id, state) values ($1, $2, $3)
			on conflict (tenant, order_id) do update set state = excluded.state`, name, e.Stream, next)
		if err != nil || then.Type == "" {
			return err
		}
		tenant, err := store.ForTenant(name)
		if err != nil {
			return err
		}
		_, err = tenant.AppendTx(ctx, tx, e.Stream, event.Any, then)
		return err
	}, event.Strict)
}

// orders is a store of orders, with the projections of docs/sagas.md.
type orders struct {
	*millracetest.Kit
	store    millracetest.Store
	checkout millrace.Projection
	// charge makes the projection that pays.
	charge func(pay Pay) millrace.Projection
	// acme is another tenant.
	acme *millracetest.Kit
	read func(tenant, stream string) iter.Seq2[event.Envelope, error]
}

// reader returns a function that reads a stream of a tenant.
func reader[T interface {
	ReadStream(ctx context.Context, stream string, fromVersion int64) iter.Seq2[event.Envelope, error]
}](t *testing.T, tenantOf func(name string) (T, error)) func(tenant, stream string) iter.Seq2[event.Envelope, error] {
	return func(tenant, stream string) iter.Seq2[event.Envelope, error] {
		of, err := tenantOf(tenant)
		if err != nil {
			t.Fatal(err)
		}
		return of.ReadStream(t.Context(), stream, 1)
	}
}

// withOrders runs a test with a store of each kind.
func withOrders(t *testing.T, test func(t *testing.T, o orders)) {
	onPostgres(t, func(t *testing.T, store *pgstore.Store) {
		k := millracetest.New(t, store)
		charge := func(pay Pay) millrace.Projection { return charge(store.ForTenant, pay) }
		test(t, orders{k, store, checkout(store), charge, k.Tenant("acme"), reader(t, store.ForTenant)})
	}, pgstore.TenantSQL(`create table checkouts (order_id text primary key, state text not null)`))
	t.Run("sqlitestore", func(t *testing.T) {
		store, err := sqlitestore.Open(t.Context(), t.TempDir()+
			"/orders.db", sqlitestore.Options{Synchronous: sqlitestore.SynchronousNormal})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		k := millracetest.New(t, store)
		k.Exec(`create table checkouts (tenant text, order_id text, state text not null, primary key (tenant, order_id))`)
		p := millrace.Projection{Name: "checkout",
			Handler: sqlitestore.Route(followInFile(store, onPlaced), followInFile(store, onPaid),
				followInFile(store, onDeclined), followInFile(store, onCancelled))}
		charge := func(pay Pay) millrace.Projection { return charge(store.ForTenant, pay) }
		test(t, orders{k, store, p, charge, k.Tenant("acme"), reader(t, store.ForTenant)})
	})
}

// has compares the events of an order with these. Each is a type, and the version of the event that led to it. Events
// that follow from an event have its correlation id. If it has none, its own place is their correlation id.
func (o orders) has(t *testing.T, tenant, stream string, want ...string) {
	t.Helper()
	var got []string
	before := make(map[string]event.Envelope)
	for e, err := range o.read(tenant, stream) {
		if err != nil {
			t.Fatal(err)
		}
		line := e.Type
		if cause, found := before[e.CausationID]; found &&
			e.CorrelationID == cmp.Or(cause.CorrelationID, e.CausationID) {
			line += fmt.Sprint(" by ", cause.Version)
		}
		got = append(got, line)
		before[fmt.Sprintf("%s/%d", tenant, e.Position)] = e
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s of tenant %s has %q, want %q", stream, tenant, got, want)
	}
}

// provider accepts what costs at most 100 cents, and keeps the keys of payments. Tenants pay at the same time.
type provider struct{ keys sync.Map }

func (p *provider) pay(_ context.Context, key string, cents int64) (bool, error) {
	p.keys.Store(key, true)
	return cents <= 100, nil
}

// payments is how many payments there were.
func (p *provider) payments() (n int) {
	p.keys.Range(func(any, any) bool { n++; return true })
	return n
}

// placed appends two orders for each tenant, one of which the provider declines.
func (o orders) placed() {
	for _, k := range []*millracetest.Kit{o.Kit, o.acme} {
		k.Given("order-1", event.New(OrderPlaced{"Ada", 100}))
		k.Given("order-2", event.New(OrderPlaced{"Ada", 101}))
	}
}

// hasAll checks both orders of both tenants at their end.
func (o orders) hasAll(t *testing.T) {
	t.Helper()
	for _, tenant := range []string{projection.DefaultTenant, "acme"} {
		o.has(t, tenant, "order-1", "OrderPlaced", "PaymentRequested by 1", "Paid by 2", "OrderConfirmed by 3")
		o.has(t, tenant, "order-2", "OrderPlaced", "PaymentRequested by 1", "PaymentDeclined by 2",
			"OrderCancelled by 3")
	}
}

// Each order is paid and confirmed, or declined and cancelled, in its own tenant.
func TestSagaEndsWithAConfirmedOrACancelledOrder(t *testing.T) {
	t.Parallel()
	withOrders(t, func(t *testing.T, o orders) {
		o.placed()
		bank := new(provider)
		o.When(o.checkout, o.charge(bank.pay))
		o.hasAll(t)
		if n := bank.payments(); n != 4 {
			t.Errorf("%d payments", n)
		}
	})
}

// An order that is cancelled while it is paid is refunded. A second answer changes nothing.
func TestSagaCompensatesWhatCameTooLate(t *testing.T) {
	t.Parallel()
	withOrders(t, func(t *testing.T, o orders) {
		o.Given("order-1", event.New(OrderPlaced{"Ada", 100}))
		o.When(o.checkout)
		o.Given("order-1", event.New(OrderCancelled{"the customer"}), event.New(Paid{"key"}), event.New(Paid{"key"}))
		o.When(o.checkout)
		o.has(t, projection.DefaultTenant, "order-1", "OrderPlaced", "PaymentRequested by 1", "OrderCancelled", "Paid",
			"Paid",
			"RefundRequested by 4")
	})
}

// Whatever interrupts the handlers, each event is followed by one. A payment whose answer was lost is asked for again,
// with its key.
func TestSagaThatIsInterruptedFollowsOnce(t *testing.T) {
	t.Parallel()
	faults := map[string]func(o orders) (checkout, charge []millrace.Middleware){
		"lost commits": func(o orders) (_, _ []millrace.Middleware) {
			return []millrace.Middleware{o.LostCommit()}, []millrace.Middleware{o.LostCommit()}
		},
		"lost leases": func(o orders) (_, _ []millrace.Middleware) {
			return []millrace.Middleware{o.LostLease()}, nil
		},
		"failures": func(o orders) (_, _ []millrace.Middleware) {
			return []millrace.Middleware{o.FailAt(1, 2)}, []millrace.Middleware{o.FailAt(3, 2)}
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			withOrders(t, func(t *testing.T, o orders) {
				o.placed()
				bank := new(provider)
				pays := o.charge(bank.pay)
				o.checkout.Middleware, pays.Middleware = fault(o)
				o.When(o.checkout, pays)
				o.hasAll(t)
				if n := bank.payments(); n != 4 {
					t.Errorf("%d payments", n)
				}
			})
		})
	}
}

// A saga that handles its events again finds the states of its orders, and appends nothing. It has no Reset, so a
// rebuild is refused.
func TestSagaThatBeginsAgainAppendsNothing(t *testing.T) {
	t.Parallel()
	withOrders(t, func(t *testing.T, o orders) {
		o.placed()
		o.When(o.checkout, o.charge(new(provider).pay))
		rt, err := millrace.New(millrace.Config{Store: o.store})
		if err != nil {
			t.Fatal(err)
		}
		if err := rt.Register(o.checkout); err != nil {
			t.Fatal(err)
		}
		id := millrace.ProjectionID{Name: "checkout"}
		if err := rt.Rebuild(t.Context(), id, admin.ResetOptions{}); !errors.Is(err, projection.ErrNoHook) {
			t.Errorf("a rebuild: %v", err)
		}
		if _, err := rt.Reset(t.Context(), id, 0, admin.ResetOptions{}); err != nil {
			t.Fatal(err)
		}
		again := o.When(o.checkout).Projections
		at := slices.IndexFunc(again,
			func(p admin.ProjectionStatus) bool { return p.ID.Tenant == projection.DefaultTenant })
		if at < 0 || again[at].Applied != 5 {
			t.Errorf("it handled its events again: %+v", again)
		}
		o.hasAll(t)
	})
}

// An order that does not decode parks its stream. The others go on, and a replay continues the order.
func TestSagaParksOneOrder(t *testing.T) {
	t.Parallel()
	withOrders(t, func(t *testing.T, o orders) {
		broken := o.checkout
		broken.Middleware = []millrace.Middleware{o.FailAt(1, millracetest.Always)}
		o.placed()
		pays := o.charge(new(provider).pay)
		o.When(broken, pays)
		o.has(t, projection.DefaultTenant, "order-1", "OrderPlaced")
		o.has(t, projection.DefaultTenant, "order-2", "OrderPlaced", "PaymentRequested by 1", "PaymentDeclined by 2",
			"OrderCancelled by 3")
		o.Parked("checkout", 1)
		o.Replay(o.checkout)
		o.When(o.checkout, pays)
		o.hasAll(t)
	})
}

// A saga that begins at the end leaves the orders from before alone.
func TestSagaThatBeginsAtTheEndLeavesOldOrdersAlone(t *testing.T) {
	t.Parallel()
	withOrders(t, func(t *testing.T, o orders) {
		o.Given("order-1", event.New(OrderPlaced{"Ada", 100}))
		o.checkout.Start = projection.Start{End: true}
		o.When(o.checkout)
		o.Given("order-1", event.New(Paid{"key"}))
		o.Given("order-3", event.New(OrderPlaced{"Ada", 100}))
		o.When(o.checkout)
		o.has(t, projection.DefaultTenant, "order-1", "OrderPlaced", "Paid")
		o.has(t, projection.DefaultTenant, "order-3", "OrderPlaced", "PaymentRequested by 1")
	})
}

// The program of the page registers both projections.
func TestSagaIsRegistered(t *testing.T) {
	t.Parallel()
	withOrders(t, func(t *testing.T, o orders) {
		store, ok := o.store.(*pgstore.Store)
		if !ok {
			t.Skip("the page is for PostgreSQL")
		}
		o.Given("order-1", event.New(OrderPlaced{"Ada", 100}))
		rt, err := millrace.New(millrace.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		if err := register(rt, store, new(provider).pay); err != nil {
			t.Fatal(err)
		}
		if status, err := rt.RunUntilIdle(t.Context()); err != nil || len(status.Projections) != 4 {
			t.Errorf("%+v, %v", status.Projections, err)
		}
	})
}

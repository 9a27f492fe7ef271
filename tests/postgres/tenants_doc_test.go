package postgres_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// service is the program of docs/tenants.md, which shows most of its methods.
type service struct {
	store *pgstore.Store
	rt    *millrace.Runtime
}

func (s *service) comes(ctx context.Context, customer string) error {
	tenant, err := s.store.CreateTenant(ctx, customer)
	if err != nil {
		return err
	}
	opened, err := tenant.Append(ctx, "account", event.NoStream.WithKey("opened"), event.Untyped("AccountOpened", nil))
	if err != nil {
		return err
	}
	id := millrace.ProjectionID{Tenant: customer, Name: "counts"}
	return s.rt.WaitFor(ctx, id, opened.Last())
}

func (s *service) manyCome(ctx context.Context, customers []string) error {
	return s.store.CreateTenants(ctx, customers...)
}

type SignedUp struct{ Customer string }

func (SignedUp) EventType() string { return "SignedUp" }

func (s *service) signsUp(ctx context.Context, customer string) error {
	asked, err := s.store.Append(ctx, "sign-up "+customer,
		event.Any.WithKey("sign-up "+customer), event.New(SignedUp{Customer: customer}))
	if err != nil {
		return err
	}
	return s.rt.WaitFor(ctx, millrace.ProjectionID{Name: "sign-ups"}, asked.Last())
}

func signUps(store *pgstore.Store) (*millrace.Runtime, error) {
	rt, err := millrace.New(millrace.Config{Store: store, Tenants: []string{projection.DefaultTenant}})
	if err != nil {
		return nil, err
	}
	return rt, rt.Register(millrace.Projection{
		Name: "sign-ups",
		Handler: millrace.DeliverRoute(millrace.DeliverOn(func(ctx context.Context,
			e millrace.DeliveredOf[SignedUp]) error {
			_, err := store.CreateTenant(ctx, e.Body.Customer)
			return err
		}, event.Strict)),
	})
}

func (s *service) archive(ctx context.Context, customer string) error {
	return s.store.ArchiveTenant(ctx, customer)
}

func (s *service) comesBack(ctx context.Context, customer string) error {
	return s.store.UnarchiveTenant(ctx, customer)
}

func (s *service) repair(ctx context.Context, customer string) error {
	if err := s.rt.PauseTenant(ctx, customer); err != nil {
		return err
	}
	tenant, err := s.store.ForTenant(customer)
	if err != nil {
		return err
	}
	err = tenant.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `delete from counts where n = 0`)
		return err
	})
	return errors.Join(err, s.rt.ResumeTenant(ctx, customer))
}

func (s *service) leaves(ctx context.Context, customer string, file io.Writer) error {
	if err := s.store.ArchiveTenant(ctx, customer); err != nil {
		return err
	}
	tenant, err := s.store.ForTenant(customer)
	if err != nil {
		return err
	}
	out := json.NewEncoder(file)
	for e, err := range tenant.ReadAll(ctx, event.ReadOptions{}) {
		if err != nil {
			return err
		}
		if err := out.Encode(map[string]any{"stream": e.Stream, "version": e.Version, "type": e.Type,
			"body": e.Body}); err != nil {
			return err
		}
	}
	return s.store.DropTenant(ctx, customer, tenancy.DropOptions{Confirm: customer})
}

// customers is the service of docs/tenants.md on two nodes. The nodes run as the bundle's role. owner is a process of
// the role that owns the schemas, which runs no projection.
type customers struct {
	*bundle
	nodes, owner *service
}

// onCustomers runs a test of the page with one role, and with two.
func onCustomers(t *testing.T, test func(t *testing.T, c customers)) {
	steps := pgstore.Options{
		TenantSetup: []pgstore.TenantStep{pgstore.TenantSQL(`create table counts (type text primary key, n int)`)},
	}
	onRoles(t, func(t *testing.T, owner *pgstore.Store, b *bundle) {
		owner = b.open(owner.Pool().Config().ConnString(), nil, steps)
		b.Must(owner.Migrate(b.Ctx))
		b.use(b.open(b.dsn, nil, steps))
		p := millrace.Projection{Name: "counts",
			Handler: b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
				return tx.Exec(ctx,
					`insert into counts values ($1, 1) on conflict (type) do update set n = counts.n + 1`,
					e.Type)
			})}
		b.Start(b.Another(slow, p))
		job, err := millrace.New(millrace.Config{Store: owner})
		b.Must(err)
		b.Must(job.Register(p))
		test(t, customers{b, &service{b.store, b.Running(slow, p)}, &service{owner, job}})
	})
}

// places appends an order of a customer and waits until it is counted.
func (c customers) places(customer string) {
	c.T.Helper()
	tenant, err := c.store.ForTenant(customer)
	c.Must(err)
	r, err := tenant.Append(c.Ctx, "account", event.Any, event.Untyped("OrderPlaced", nil))
	c.Must(err)
	c.ReachesOf(c.nodes.rt, customer, "counts", r.Positions[0])
}

// mustCount checks the read model of a customer.
func (b *bundle) mustCount(customer string, want map[string]int) {
	b.T.Helper()
	tenant, err := b.store.ForTenant(customer)
	b.Must(err)
	rows, err := b.store.Pool().Query(b.Ctx, "select type, n from "+
		pgx.Identifier{tenant.EventsSchema(), "counts"}.Sanitize())
	b.Must(err)
	counts, name, n := make(map[string]int), "", 0
	_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error {
		counts[name] = n
		return nil
	})
	b.Must(err)
	if !maps.Equal(counts, want) {
		b.T.Errorf("customer %s has %v, want %v", customer, counts, want)
	}
}

func TestCustomersCome(t *testing.T) {
	onCustomers(t, func(t *testing.T, c customers) {
		for range 2 { // it may be repeated
			c.Must(c.owner.comes(c.Ctx, "acme"))
			c.mustCount("acme", map[string]int{"AccountOpened": 1})
		}
		names := []string{"acme"}
		for i := range 100 {
			names = append(names, fmt.Sprint("customer ", i))
		}
		for range 2 {
			c.Must(c.owner.manyCome(c.Ctx, names))
		}
		for _, name := range []string{names[0], names[1], names[100]} {
			c.Must(c.owner.comes(c.Ctx, name))
			c.places(name)
			c.mustCount(name, map[string]int{"AccountOpened": 1, "OrderPlaced": 1})
		}
	})
}

func TestArchivedCustomerComesBack(t *testing.T) {
	onCustomers(t, func(t *testing.T, c customers) {
		c.Must(c.owner.comes(c.Ctx, "acme"))
		c.Must(c.owner.comes(c.Ctx, "other"))
		c.Must(c.owner.archive(c.Ctx, "acme"))
		acme, err := c.store.ForTenant("acme")
		c.Must(err)
		if _, err := acme.Append(c.Ctx, "account", event.Any, event.Untyped("OrderPlaced", nil)); !errors.Is(err,
			tenancy.ErrArchived) {
			t.Errorf("append: %v", err)
		}
		id := millrace.ProjectionID{Tenant: "acme", Name: "counts"}
		status := c.StatusOf(c.nodes.rt)
		p := status.Projection(id)
		if p.State != admin.StatePaused || p.Reason != "the tenant is archived" || p.Owner != "" {
			t.Errorf("status: %+v", p)
		}
		for _, tenant := range status.Tenants {
			if tenant.Tenant == "acme" && (tenant.State != tenancy.Archived || tenant.Mark != tenant.Head) ||
				tenant.Tenant == "other" && tenant.State != tenancy.Active {
				t.Errorf("status: %+v", tenant)
			}
		}
		if err := c.nodes.rt.WaitFor(c.Ctx, id, 100); !errors.Is(err, projection.ErrPaused) ||
			!strings.Contains(err.Error(), "the tenant is archived") {
			t.Errorf("WaitFor: %v", err)
		}
		c.Must(c.nodes.rt.ResumeTenant(c.Ctx, "acme"))
		c.places("other")
		if c.StatusOf(c.nodes.rt).Projection(id).State != admin.StatePaused {
			t.Error("resuming an archived tenant runs it")
		}
		if _, err := c.nodes.rt.RunUntilIdle(c.Ctx); err == nil || strings.Contains(err.Error(), "paused") {
			t.Errorf("RunUntilIdle of a runtime that runs: %v", err)
		}
		c.RunUntilIdle(c.Another(slow, millrace.Projection{Name: "counts", Handler: c.Store.Batch(kit.Nothing)}))
		c.mustCount("acme", map[string]int{"AccountOpened": 1})
		epoch := p.Epoch
		c.Must(c.owner.comesBack(c.Ctx, "acme"))
		c.places("acme")
		c.mustCount("acme", map[string]int{"AccountOpened": 1, "OrderPlaced": 1})
		if now := c.StatusOf(c.nodes.rt).Projection(id); now.Epoch != epoch+1 {
			t.Errorf("epoch %d after %d: the archived projection was claimed", now.Epoch, epoch)
		}
	})
}

func TestTenantIsRepairedWhileNothingOfItRuns(t *testing.T) {
	onCustomers(t, func(t *testing.T, c customers) {
		c.Must(c.owner.comes(c.Ctx, "acme"))
		c.exec("insert into millrace_acme.counts values ('wrong', 0)")
		c.Must(c.nodes.repair(c.Ctx, "acme"))
		c.places("acme")
		c.mustCount("acme", map[string]int{"AccountOpened": 1, "OrderPlaced": 1})
	})
}

func TestCustomerLeavesWithItsEvents(t *testing.T) {
	onCustomers(t, func(t *testing.T, c customers) {
		for range 3 { // a customer of that name may come again
			c.Must(c.owner.comes(c.Ctx, "acme"))
			c.places("acme")
			c.mustCount("acme", map[string]int{"AccountOpened": 1, "OrderPlaced": 1})
			var file bytes.Buffer
			c.Must(c.owner.leaves(c.Ctx, "acme", &file))
			want := `{"body":null,"stream":"account","type":"AccountOpened","version":1}` + "\n" +
				`{"body":null,"stream":"account","type":"OrderPlaced","version":2}` + "\n"
			if file.String() != want {
				t.Errorf("exported %s, want %s", &file, want)
			}
			id := millrace.ProjectionID{Tenant: "acme", Name: "counts"}
			if err := c.nodes.rt.WaitFor(c.Ctx, id, 1); !errors.Is(err, tenancy.ErrUnknown) {
				t.Errorf("WaitFor: %v", err)
			}
			if n := len(c.StatusOf(c.nodes.rt).Projections); n != 1 {
				t.Errorf("%d projections are left", n)
			}
		}
	})
}

package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// release is a release of the service of docs/tenants.md: its steps, and a projection for each table that they create.
type release []string

func (r release) options() (o pgstore.Options) {
	for _, table := range r {
		o.TenantSetup = append(o.TenantSetup, pgstore.TenantSQL("create table "+
			table+" (n int not null); insert into "+table+" values (0)"))
	}
	return o
}

func (r release) projections() (list []millrace.Projection) {
	for _, table := range r {
		list = append(list, millrace.Projection{Name: table,
			Tenants: []string{"before", "meanwhile", "after"},
			Handler: pgstore.Each(func(ctx context.Context, tx pgx.Tx, _ event.Envelope) error {
				_, err := tx.Exec(ctx, "update "+table+" set n = n + 1")
				return err
			})})
	}
	return list
}

// Customers sign up at servers that may not create tenants, before, during and after a rollout of a release with one
// more step.
func TestCustomersSignUpUnderTwoRolesDuringARollout(t *testing.T) {
	t.Parallel()
	owner, b := newRoles(t, func(*bundle) {})
	ownerDSN := owner.Pool().Config().ConnString()
	releases := []release{{"orders"}, {"orders", "sums"}}
	creates := func(r release) (stop func()) {
		store := b.open(ownerDSN, nil, r.options())
		b.Must(store.Migrate(b.Ctx))
		rt, err := signUps(store)
		b.Must(err)
		stop = b.Start(rt)
		b.Is(rt, "sign-ups", admin.StateLive)
		return stop
	}
	serves := func(r release) *service {
		store := b.open(b.dsn, nil, r.options())
		config := kit.On(kit.Quick, store)
		rt, err := millrace.New(config)
		b.Must(err)
		b.Must(rt.Register(r.projections()...))
		b.Start(rt)
		return &service{store, rt}
	}
	signsUp := func(s *service, customer string) (last int64) {
		t.Helper()
		for range 2 { // it may be repeated
			b.Must(s.signsUp(b.Ctx, customer))
		}
		tenant, err := s.store.ForTenant(customer)
		b.Must(err)
		placed, err := tenant.Append(b.Ctx, "order-1", event.NoStream, event.Untyped("OrderPlaced", nil))
		b.Must(err)
		b.ReachesOf(s.rt, customer, "orders", placed.Last())
		return placed.Last()
	}
	stop := creates(releases[0])
	old := serves(releases[0])
	signsUp(old, "before")

	b.Must(b.open(ownerDSN, nil, releases[1].options()).Migrate(b.Ctx)) // the deployment's job
	server := serves(releases[1])
	b.ReachesOf(server.rt, "before", "sums", 1)
	last := signsUp(server, "meanwhile")
	b.Eventually("the projection waits for the table of the new step", func() bool {
		list, err := server.rt.Admin.Status(b.Ctx,
			admin.StatusFilter{Tenants: []string{"meanwhile"}, Names: []string{"sums"}})
		return err == nil && len(list.Projections) == 1 && list.Projections[0].Reason != "" &&
			list.Projections[0].Parked == 0
	})
	stop()
	defer creates(releases[1])()
	b.ReachesOf(server.rt, "meanwhile", "sums", last)
	b.ReachesOf(server.rt, "after", "sums", signsUp(server, "after"))
}

package millracetest

import (
	"context"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
)

// byTenant is the table of totals of all tenants. On PostgreSQL each tenant has one of its own.
const (
	byTenant    = "create table if not exists totals_of (tenant text, customer text, total integer, primary key (tenant, customer))"
	addByTenant = "insert into totals_of values ($1, $2, $3) on conflict (tenant, customer) do update set total = totals_of.total + excluded.total"
	allByTenant = "select customer, total from totals_of where tenant = 'TENANT' order by 1"
)

func totalsOf(tenant string) string { return strings.Replace(allByTenant, "TENANT", tenant, 1) }

// totalsByTenant is a projection that writes to totals_of.
func (on kind) totalsByTenant() millrace.Projection {
	return millrace.Projection{Name: "totals",
		Handler: on.each(func(ctx context.Context, exec execFunc, e event.Envelope) error {
			p, err := event.As[paid](e)
			id, _ := millrace.ProjectionFrom(ctx)
			if err != nil {
				return err
			}
			return exec(addByTenant, id.Tenant, p.Body.Customer, p.Body.Amount)
		})}
}

// ofTenants returns the Kits of two tenants, with the tables of both.
func (on kind) ofTenants(t testing.TB) (k, acme, globex *Kit) {
	t.Helper()
	setup := []string{strings.Replace(table, "table", "table if not exists", 1), byTenant}
	k = on.open(t, setup...)
	return k, k.Tenant("acme", setup...), k.Tenant("globex", setup...)
}

func TestProjectionOfTenantsIsTested(t *testing.T) {
	onEachPlace(t, func(t *testing.T, on kind) {
		k, acme, globex := on.ofTenants(t)
		acme.Given("order-1", event.New(paid{"Ada", 30}), event.New(paid{"Ada", 12}))
		globex.Given("order-1", event.New(paid{"Ada", 1}))
		k.When(on.totalsByTenant())
		acme.Then(totalsOf("acme"), "Ada | 42")
		globex.Then(totalsOf("globex"), "Ada | 1")
		k.Then(totalsOf("default"))

		k.Given("order-1", event.New(paid{"Bob", 2}))
		status := acme.When(on.totalsByTenant())
		k.Then(totalsOf("default"), "Bob | 2")
		if p := status.Projection(millrace.ProjectionID{Tenant: "globex", Name: "totals"}); p.Position != 1 {
			t.Errorf("%+v", p)
		}
	})
}

func TestParkedEventsBelongToTheirTenant(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		run := func(t testing.TB, then func(k, acme, globex *Kit)) {
			k, acme, globex := on.ofTenants(t)
			acme.Given("order-1", event.New(paid{"Ada", 30}), event.New(paid{"Ada", 12}))
			globex.Given("order-1", event.New(paid{"Ada", 1}), event.New(paid{"Bob", 2}))
			p := on.totalsByTenant()
			p.Middleware = []millrace.Middleware{acme.FailAt(2, Always)}
			k.When(p)
			then(k, acme, globex)
		}
		run(t, func(k, acme, globex *Kit) {
			acme.Then(totalsOf("acme"), "Ada | 30")
			globex.Then(totalsOf("globex"), "Ada | 1", "Bob | 2")
			if letters := acme.Parked("totals", 2); len(letters) != 1 ||
				!strings.Contains(letters[0].Error, ErrInjected.Error()) {
				t.Errorf("%+v", letters)
			}
			globex.Parked("totals")
		})
		text := failures(t, func(t testing.TB) { run(t, func(k, acme, globex *Kit) { globex.Parked("totals") }) })
		if !strings.Contains(text, "did not expect") ||
			!strings.Contains(text, "projection acme/totals parked position 2") {
			t.Errorf("%q", text)
		}
	})
}

func TestFaultsDisturbOneTenant(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		for name, fault := range map[string]func(*Kit) millrace.Middleware{"lost commit": (*Kit).LostCommit,
			"lost lease": (*Kit).LostLease} {
			k, acme, globex := on.ofTenants(t)
			calls := make(chan string, 100)
			p := on.totalsByTenant()
			p.Middleware = []millrace.Middleware{fault(acme), func(next millrace.HandleFunc) millrace.HandleFunc {
				return func(ctx context.Context, events []event.Envelope) error {
					id, _ := millrace.ProjectionFrom(ctx)
					calls <- id.Tenant
					return next(ctx, events)
				}
			}}
			globex.Given("order-1", event.New(paid{"Ada", 1}))
			k.When(p)
			acme.Given("order-1", event.New(paid{"Ada", 1}))
			k.When(p)
			acme.Then(totalsOf("acme"), "Ada | 1")
			globex.Then(totalsOf("globex"), "Ada | 1")
			close(calls)
			of := make(map[string]int)
			for tenant := range calls {
				of[tenant]++
			}
			if of["globex"] != 1 || of["acme"] != 2 {
				t.Errorf("%s: the handler was called %v times", name, of)
			}
		}
	})
}

func TestRepeatableWorksOnATenant(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		given := func(t testing.TB) *Kit {
			_, acme, globex := on.ofTenants(t)
			acme.Given("order-1", event.New(paid{"Ada", 30}), event.New(paid{"Bob", 7}))
			globex.Given("order-1", event.New(paid{"Ada", 1}))
			return acme
		}
		var want outcome
		text := failures(t, func(t testing.TB) {
			want = undisturbed(t, given, on.totalsByTenant, []string{totalsOf("acme")})
			want.compare(t, given, on.totalsByTenant, named("lost commit"))
		})
		if text != "" || len(want.rows[0]) != 2 {
			t.Errorf("%+v, %s", want, text)
		}
		forgetful := func() millrace.Projection {
			p, seen := on.totalsByTenant(), int64(0)
			p.Middleware = []millrace.Middleware{func(next millrace.HandleFunc) millrace.HandleFunc {
				return func(ctx context.Context, events []event.Envelope) error {
					if id, _ := millrace.ProjectionFrom(ctx); id.Tenant != "acme" {
						return next(ctx, events)
					}
					if events[0].Position <= seen {
						return nil // a failure, since next was not called: the event is parked
					}
					seen = events[0].Position
					return next(ctx, events)
				}
			}}
			return p
		}
		if text := failures(t,
			func(t testing.TB) { want.compare(t, given, forgetful, named("lost commit")) }); !strings.Contains(text,
			"lost commit: parked events") {
			t.Errorf("%q", text)
		}
	})
}

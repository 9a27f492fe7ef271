package millracetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// limit bounds each call of the Kit. Only a call that hangs takes so long.
const limit = 2 * time.Minute

// Store is a store that a Kit can use: a *pgstore.Store or a *sqlitestore.Store.
type Store interface {
	millrace.Store
	Migrate(ctx context.Context) error
	Tenants(ctx context.Context) ([]string, error)
	DeadLetters(id projection.ID) projection.DeadLetters
}

// Kit runs projections on a store that only the test uses. SQLite, Postgres and New return the Kit of
// projection.DefaultTenant. Tenant returns the Kit of another tenant on the same store. The methods of a Kit fail the
// test on an error, and must be called from the goroutine of the test.
type Kit struct {
	*bench
	tenant string
	data   data
}

// bench is what the Kits of all tenants of a store share.
type bench struct {
	t      testing.TB
	store  Store
	config millrace.Config
	// rounds limits how often When runs projections whose handlers append further events.
	rounds int
	// parked are the parked events of the projections that ran. expected are the projections about which Parked asked.
	parked   map[millrace.ProjectionID][]projection.DeadLetter
	expected map[millrace.ProjectionID]bool

	mu sync.Mutex
	// interrupt stops the runtime of When. It is nil while none runs. interrupted reports whether it was called.
	interrupt   context.CancelFunc
	interrupted bool
}

// New returns a Kit on a store that is open, and migrates the store. The Kit does not close it.
func New(t testing.TB, store Store) *Kit {
	t.Helper()
	k := &Kit{tenant: projection.DefaultTenant, bench: &bench{t: t, store: store, rounds: 100,
		parked:   make(map[millrace.ProjectionID][]projection.DeadLetter),
		expected: make(map[millrace.ProjectionID]bool)}}
	k.data = k.dataOf(k.tenant)
	ctx, cancel := k.context()
	defer cancel()
	k.must(store.Migrate(ctx))
	t.Cleanup(k.checkParked)
	return k
}

// Tenant creates a tenant and returns its Kit. Given, Exec, Then, Parked and the operations of that Kit work on the
// tenant, while When always runs projections for all tenants. setup are statements that make the tables of its read
// models. In a file, the tenants share the tables: make these once, with a column for the tenant. On PostgreSQL, the
// tenant has a schema of its own, and pgstore.Options.TenantSetup may make the tables instead.
func (k *Kit) Tenant(name string, setup ...string) *Kit {
	k.t.Helper()
	of := &Kit{bench: k.bench, tenant: name, data: k.dataOf(name)}
	ctx, cancel := k.context()
	defer cancel()
	k.must(of.data.create(ctx))
	of.Exec(setup...)
	return of
}

// Configure sets the Config of the runtimes that the Kit starts, for instance its Middleware, Observer or Logger. The
// Kit sets Store, and chooses durations that are not set.
func (k *Kit) Configure(config millrace.Config) { k.config = config }

// Exec runs statements in the dialect of the store, for instance to make the tables of a read model. Each is a
// transaction.
func (k *Kit) Exec(statements ...string) {
	k.t.Helper()
	ctx, cancel := k.context()
	defer cancel()
	for _, s := range statements {
		if err := k.data.exec(ctx, s); err != nil {
			k.t.Fatalf("%s: %v", s, err)
		}
	}
}

// Given appends events to a stream.
func (k *Kit) Given(stream string, events ...event.Event) event.Appended {
	k.t.Helper()
	ctx, cancel := k.context()
	defer cancel()
	appended, err := k.data.Append(ctx, stream, event.Any, events...)
	k.must(err)
	return appended
}

// Then compares the rows of a query with these lines. A line has the values of a row with " | " between them, each as
// the store prints it, and NULL for null. The query should have an order.
func (k *Kit) Then(query string, want ...string) {
	k.t.Helper()
	if got := k.query(query); !slices.Equal(got, want) {
		k.t.Errorf("%s:\n%s%s", query, diff(want, got), k.parkedNote())
	}
}

func (k *Kit) query(query string) []string {
	k.t.Helper()
	ctx, cancel := k.context()
	defer cancel()
	found, err := k.data.query(ctx, query)
	if err != nil {
		k.t.Fatalf("%s: %v", query, err)
	}
	return found
}

// id returns the ID of a projection of the Kit's tenant.
func (k *Kit) id(name string) millrace.ProjectionID {
	return millrace.ProjectionID{Tenant: k.tenant, Name: name}
}

// idOf returns the ID under which the store has the projection in the Kit's tenant.
func (k *Kit) idOf(p millrace.Projection) millrace.ProjectionID {
	return k.id(projection.VersionName(p.Name, p.Version))
}

func (b *bench) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.t.Context(), limit)
}

func (b *bench) must(err error) {
	if err != nil {
		b.t.Helper()
		b.t.Fatal(err)
	}
}

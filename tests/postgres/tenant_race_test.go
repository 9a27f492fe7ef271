package postgres_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

var (
	tenantSeed    = flag.Uint64("tenant-seed", 0, "seed of what happens to tenants at random; 0 means a new one")
	tenantChanges = flag.Int("tenant-changes", 60, "how often tenants are archived, dropped and so on at random")
)

// acked is an append that succeeded. drops is how many drops of the tenant had begun before it, and alone reports
// whether all of them had ended.
type acked struct {
	tenant int
	drops  int64
	alone  bool
	number int64
}

// race is a store with tenants that come and go while writers append.
type race struct {
	*bundle
	opts  pgstore.Options
	nodes []*millrace.Runtime
	names []string
	// begun and ended count the drops of each tenant.
	begun, ended []atomic.Int64

	next   atomic.Int64
	mu     sync.Mutex
	acks   []acked
	errors map[string]int
}

// seenBy records the numbers of events in the tenant's own table.
func seenBy(name string) pgstore.TenantStep {
	return pgstore.TenantSQL(fmt.Sprintf("create table seen_%s (number bigint, position bigint)", name))
}

func (r *race) projection(name string) millrace.Projection {
	return millrace.Projection{Name: name, MaxEvents: 7,
		Handler: pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
			for _, e := range events {
				if _, err := tx.Exec(ctx, "insert into seen_"+name+
					" values ((($1::text)::jsonb #>> '{}')::bigint, $2)", string(e.Body), e.Position); err != nil {
					return err
				}
			}
			return nil
		})}
}

// write appends until ctx ends, in one way or another, and notes what was acknowledged.
func (r *race) write(ctx context.Context, store *pgstore.Store, random *rand.Rand) {
	for ctx.Err() == nil {
		i := random.IntN(len(r.names))
		ended := r.ended[i].Load()
		a := acked{tenant: i, drops: r.begun[i].Load(), number: r.next.Add(1)}
		a.alone = a.drops == ended
		tenant, err := store.ForTenant(r.names[i])
		r.Must(err)
		e := event.Event{Type: "numbered", Body: fmt.Appendf(nil, "%d", a.number)}
		expected := event.Any
		if random.IntN(2) == 0 {
			expected = event.Any.WithKey(fmt.Sprint(a.number))
		}
		stream := fmt.Sprint("s", random.IntN(5))
		if random.IntN(3) == 0 {
			err = tenant.InTx(r.Ctx, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tenant.AppendTx(ctx, tx, stream, expected, e)
				return err
			})
		} else {
			_, err = tenant.Append(r.Ctx, stream, expected, e)
		}
		r.mu.Lock()
		switch {
		case err == nil:
			r.acks = append(r.acks, a)
			r.errors["none"]++
		case errors.Is(err, tenancy.ErrArchived):
			r.errors["archived"]++
		case errors.Is(err, tenancy.ErrDropping):
			r.errors["dropping"]++
		case errors.Is(err, tenancy.ErrUnknown):
			r.errors["unknown"]++
		default:
			r.T.Errorf("append to tenant %s: %v", r.names[i], err)
		}
		r.mu.Unlock()
		kit.Pass(ctx, time.Duration(random.IntN(3))*time.Millisecond)
	}
}

// change does one thing to one tenant. What the tenant's state forbids is no error.
func (r *race) change(store *pgstore.Store, rt *millrace.Runtime, random *rand.Rand) (what string, err error) {
	i := random.IntN(len(r.names))
	name := r.names[i]
	ctx := r.Ctx
	interrupted := random.IntN(3) == 0
	if interrupted {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(40))*time.Millisecond)
		defer cancel()
	}
	switch random.IntN(10) {
	case 0, 1:
		what, err = "archive", store.ArchiveTenant(ctx, name)
	case 2, 3:
		what, err = "unarchive", store.UnarchiveTenant(ctx, name)
	case 4, 5:
		r.begun[i].Add(1)
		what, err = "drop", store.DropTenant(ctx, name, tenancy.DropOptions{Confirm: name})
		r.ended[i].Add(1)
	case 6:
		what, err = "pause", rt.PauseTenant(ctx, name)
	case 7:
		what, err = "resume", rt.ResumeTenant(ctx, name)
	default:
		what, err = "create", store.CreateTenants(ctx, name)
	}
	for _, allowed := range []error{tenancy.ErrUnknown, tenancy.ErrDropping, projection.ErrResumed} {
		if errors.Is(err, allowed) || interrupted && ctx.Err() != nil {
			err = nil
		}
	}
	return what, err
}

// settled brings every tenant back, or ends its drop.
func (r *race) settled() {
	r.T.Helper()
	for i, name := range r.names {
		tenant, err := r.store.ForTenant(name)
		r.Must(err)
		if state, _ := tenant.State(r.Ctx); state == tenancy.Dropping {
			r.begun[i].Add(1)
			r.Must(r.store.DropTenant(r.Ctx, name, tenancy.DropOptions{Confirm: name}))
		}
		_, err = r.store.CreateTenant(r.Ctx, name)
		r.Must(err)
		r.Must(r.store.UnarchiveTenant(r.Ctx, name))
		r.Must(r.nodes[0].ResumeTenant(r.Ctx, name))
	}
}

// verify checks each tenant: what it has of events was applied once by each projection, and nothing else was; and it
// has every acknowledged event, unless it was dropped since.
func (r *race) verify(projections ...string) {
	r.T.Helper()
	has := make([]map[int64]bool, len(r.names))
	for i, name := range r.names {
		tenant, err := r.store.ForTenant(name)
		r.Must(err)
		has[i] = make(map[int64]bool)
		var positions []int64
		for e, err := range tenant.ReadAll(r.Ctx, event.ReadOptions{}) {
			r.Must(err)
			var number int64
			r.Must(e.Decode(&number))
			if has[i][number] {
				r.T.Errorf("tenant %s: %d was appended twice", name, number)
			}
			has[i][number] = true
			positions = append(positions, e.Position)
		}
		for _, p := range projections {
			if len(positions) > 0 {
				r.ReachesOf(r.nodes[0], name, p, positions[len(positions)-1])
			}
			seen := value[[]int64](r.bundle, "select coalesce(array_agg(position order by position), '{}') from "+
				pgx.Identifier{tenant.EventsSchema(), "seen_" + p}.Sanitize())
			if !slices.Equal(seen, positions) {
				r.T.Errorf("tenant %s: %s has seen %d events at %v, want %d at %v", name, p, len(seen), seen,
					len(positions), positions)
			}
			wrong := value[int](r.bundle,
				fmt.Sprintf("select count(*) from %s.seen_%s s where not exists (select from %[1]s.events e where e.global_seq = s.position and e.body #>> '{}' = s.number::text)",
					pgx.Identifier{tenant.EventsSchema()}.Sanitize(), p))
			if wrong > 0 {
				r.T.Errorf("tenant %s: %s has seen %d events of a dropped tenant", name, p, wrong)
			}
		}
	}
	for _, a := range r.acks {
		if a.alone && a.drops == r.begun[a.tenant].Load() && !has[a.tenant][a.number] {
			r.T.Errorf("tenant %s lost event %d, which was acknowledged", r.names[a.tenant], a.number)
		}
	}
}

// TestEventsOfTenantsThatComeAndGoAreAppliedOnce changes tenants at random, from two stores at once, while writers
// append and three nodes apply. One of the nodes has no session connection and polls.
func TestEventsOfTenantsThatComeAndGoAreAppliedOnce(t *testing.T) {
	seed := *tenantSeed
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -tenant-seed=%d -tenant-changes=%d", seed, *tenantChanges)
	server := pgtest.Private(t, pgtest.Options{InMemory: true})
	opts := pgstore.Options{TenantSetup: []pgstore.TenantStep{seenBy("p"), seenBy("q")}}
	r := &race{bundle: setupAt(t, server.DSN("postgres"), opts), opts: opts, errors: make(map[string]int)}
	r.Patient()
	for i := range 4 {
		r.names = append(r.names, fmt.Sprint("tenant", i))
	}
	r.begun, r.ended = make([]atomic.Int64, len(r.names)), make([]atomic.Int64, len(r.names))
	config := millrace.Config{
		Store: tuning.Settings{Reconcile: 100 * time.Millisecond}, PollInterval: 100 * time.Millisecond,
	}
	pooler := pgtest.Pooler(t, r.dsn, pgtest.PgBouncerOptions{PoolSize: 5})
	for _, dsn := range []string{r.dsn, r.dsn, kit.WithSetting(t, pooler.DSN("postgres"), "pool_max_conns", "10")} {
		c := config
		if dsn == r.dsn {
			c = kit.Tuned(c, func(s *tuning.Settings) { s.Reconcile = 10 * time.Minute }) // it relies on notifications
		}
		c = kit.On(c, r.open(dsn, nil, opts))
		rt := r.Runtime(c, r.projection("p"), r.projection("q"))
		r.Start(rt)
		r.nodes = append(r.nodes, rt)
	}
	ctx, stop := context.WithCancel(r.Ctx)
	var writers, changers sync.WaitGroup
	for w := range 4 {
		store := r.elsewhere(opts)
		writers.Go(func() { r.write(ctx, store, rand.New(rand.NewPCG(seed, uint64(w)))) })
	}
	done := make(map[string]int)
	for c := range uint64(2) {
		store := r.elsewhere(opts)
		random := rand.New(rand.NewPCG(seed, 100+c))
		changers.Go(func() {
			for range *tenantChanges {
				what, err := r.change(store, r.nodes[random.IntN(len(r.nodes))], random)
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
				r.mu.Lock()
				done[what]++
				r.mu.Unlock()
				kit.Pass(r.Ctx, time.Duration(random.IntN(60))*time.Millisecond)
			}
		})
	}
	changers.Wait()
	r.settled()
	kit.Pass(ctx, 100*time.Millisecond)
	stop()
	writers.Wait()
	t.Logf("changes %v; appends by error %v", done, r.errors)
	r.verify("p", "q")
	if len(r.errors) != 4 {
		t.Errorf("appends have met only %v", r.errors)
	}
	if n := value[int](r.bundle, "select count(*) from millrace.dead_letters"); n > 0 {
		t.Errorf("%d dead letters", n)
	}
}

package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

const (
	// sharingTenants is how many tenants have projections that share rows.
	sharingTenants = 5
	sharedKeys     = 100
	// mostDeadlocks is how many deadlocks these projections may meet. Those of five tenants meet one in each, and ten
	// that write the same rows one or two. On a machine that is busy with other work they meet up to nine.
	mostDeadlocks = 15
)

// sharedEvents is how many events each of the tenants has.
var sharedEvents = flag.Int("shared-events", 2000, "how many events each tenant of the deadlock tests has")

// sharedRows are projections that write the same rows, up in ascending and down in descending order, so that their
// batches deadlock.
type sharedRows struct {
	*bundle
	// together reports that the projections of all tenants write the same rows. Otherwise those of each tenant do.
	together  bool
	last      map[string]int64
	deadlocks atomic.Int64
}

func newSharedRows(t *testing.T, together bool) *sharedRows {
	t.Helper()
	s := &sharedRows{
		bundle: setup(t, pgstore.Options{}, "pool_max_conns", "20"), together: together, last: make(map[string]int64),
	}
	s.exec("create table shared_rows (tenant text, key int, n int not null, primary key (tenant, key))")
	for _, tenant := range s.Tenants(sharingTenants) {
		for range *sharedEvents / 500 {
			s.last[tenant.Name()] = s.AppendTo(tenant, "s", 500)
		}
	}
	return s
}

// projection returns up or down.
func (s *sharedRows) projection(name string) millrace.Projection {
	return millrace.Projection{Name: name,
		Handler: s.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			id, _ := millrace.ProjectionFrom(ctx)
			tenant := id.Tenant
			if s.together {
				tenant = "all"
			}
			events = slices.Clone(events)
			slices.SortStableFunc(events, func(a,
				b event.Envelope) int {
				return cmp.Compare(a.Position%sharedKeys, b.Position%sharedKeys)
			})
			if name == "down" {
				slices.Reverse(events)
			}
			for _, e := range events {
				_, err := pg(tx).Exec(ctx, `insert into public.shared_rows as r values ($1, $2, 1)
				on conflict (tenant, key) do update set n = r.n + excluded.n`, tenant, e.Position%sharedKeys)
				var pgErr *pgconn.PgError
				if errors.As(err, &pgErr) && pgErr.Code == "40P01" {
					s.deadlocks.Add(1)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})}
}

// run runs a node with each of the lists of projections, until all have caught up.
func (s *sharedRows) run(nodes ...[]string) (took time.Duration, statuses []admin.ProjectionStatus) {
	s.T.Helper()
	began := time.Now()
	for _, names := range nodes {
		var projections []millrace.Projection
		for _, name := range names {
			projections = append(projections, s.projection(name))
		}
		rt := s.Another(millrace.Config{}, projections...)
		defer s.Start(rt)()
		defer func() {
			s.T.Helper()
			for _, name := range names {
				for tenant, last := range s.last {
					s.ReachesOf(rt, tenant, name, last)
				}
			}
			took = time.Since(began)
			for _, p := range s.StatusOf(rt).Projections {
				if slices.Contains(names, p.ID.Name) {
					statuses = append(statuses, p)
				}
			}
		}()
	}
	return took, statuses
}

// Projections that write the same rows in different orders, and that are far behind, do not meet one deadlock after
// another: they are kept apart, also on several nodes.
func TestProjectionsThatShareRowsAreKeptApart(t *testing.T) {
	for name, c := range map[string]struct {
		together bool
		nodes    [][]string
	}{
		"rows of each tenant":            {false, [][]string{{"up", "down"}}},
		"rows of all tenants":            {true, [][]string{{"up", "down"}}},
		"rows of all tenants, two nodes": {true, [][]string{{"up"}, {"down"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSharedRows(t, c.together)
			took, statuses := s.run(c.nodes...)
			deadlocks := s.deadlocks.Load()
			if deadlocks > mostDeadlocks {
				t.Errorf("%d deadlocks, want at most %d", deadlocks, mostDeadlocks)
			}
			if n := value[int](s.bundle, "select sum(n) from shared_rows"); n != 2*sharingTenants**sharedEvents {
				t.Errorf("%d events are applied, want %d", n, 2*sharingTenants**sharedEvents)
			}
			reasons := 0
			for _, p := range statuses {
				if p.Parked+int64(p.Attempts) != 0 {
					t.Errorf("%s has counted deadlocks: %+v", p.ID, p)
				}
				if strings.HasPrefix(p.Reason, "kept apart until ") {
					reasons++
				}
			}
			if deadlocks == 0 || reasons == 0 {
				t.Errorf("after %d deadlocks %d projections say that they are kept apart", deadlocks, reasons)
			}
			alone := newSharedRows(t, c.together)
			up, _ := alone.run([]string{"up"})
			down, _ := alone.run([]string{"down"})
			t.Logf("%v with %d deadlocks, one projection after the other %v: a factor of %.1f", took, deadlocks,
				up+down, float64(took)/float64(up+down))
		})
	}
}

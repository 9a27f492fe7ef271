package actors

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/ownership"
	"github.com/millrace-go/millrace/projection"
)

// claims is a store in which the leases of one projection of many tenants can be claimed. It notes what was called.
type claims struct {
	engine.Ownership
	wanted        int
	counts, owned int
	claims        []int
	claimed       func()
}

func (s *claims) Counts(context.Context, []string, []string) ([]engine.Want, error) {
	s.counts++
	return []engine.Want{{Name: "p", Leases: s.wanted}}, nil
}

func (s *claims) Owned(context.Context, engine.Node) ([]engine.Lease, error) {
	s.owned++
	return nil, nil
}

func (s *claims) Claim(_ context.Context, node engine.Node, rows []int32, _ bool) ([]engine.Lease, error) {
	s.claims = append(s.claims, len(rows))
	leases := make([]engine.Lease, len(rows))
	for i, row := range rows {
		leases[i] = engine.Lease{
			Row: row, ID: projection.ID{Tenant: fmt.Sprint("t", row), Name: "p"}, Owner: node.ID, Epoch: 1,
			Desired: engine.WantRun,
		}
	}
	if s.claimed != nil {
		s.claimed()
	}
	return leases, nil
}

// newClaim returns the search of a node of one projection, which found n free leases.
func newClaim(n int) (*claims, *claim) {
	store := &claims{wanted: n}
	deps := &Deps{Store: Store{Ownership: store}, Log: zap.NewNop(), System: NewSystem(zap.NewNop()),
		Limiter: NewLimiter(Limits{Connections: 4}),
		Node:    engine.Node{ID: "a", Projections: []string{"p"}, LeaseDuration: time.Hour},
		Timing:  Timing{QueryTimeout: time.Minute}}
	deps.Init()
	deps.Registry.session.publish(func(e *SessionEntry) { e.Connected, e.HeartbeatSent = true, time.Now() })
	c := &claim{deps: deps, step: ownership.Step{ReadOwned: true, Balance: true},
		fleet:     []engine.Member{deps.Node.Member()},
		ownedRead: func([]engine.Lease) {}, claimed: func([]engine.Lease) {}}
	for i := range n {
		c.free.Leases = append(c.free.Leases, engine.LeaseRef{Row: int32(i + 1),
			ID: projection.ID{Tenant: fmt.Sprint("t", i+1), Name: "p"}})
	}
	return store, c
}

// A search for each statement's leases would list the free ones, and compute the shares, 20 times for 100,000 leases.
func TestOneSearchClaimsAllLeasesOfItsShare(t *testing.T) {
	t.Parallel()
	store, c := newClaim(12_000)
	reports, before := 0, 0
	report := func([]engine.Lease) { reports++ }
	c.ownedRead, c.claimed = report, report
	store.claimed = func() { before = reports }
	if err := c.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(store.claims) != "[5000 5000 2000]" || store.counts != 1 || store.owned != 1 || c.short {
		t.Errorf("claims of %v leases, %d counts, %d reads of the owned leases, short %v", store.claims, store.counts,
			store.owned, c.short)
	}
	// The owned leases, and two of the three claims.
	if before != 3 || reports != 4 {
		t.Errorf("%d of %d reports came before the last claim", before, reports)
	}
}

func TestSearchEndsIfItsShareIsAnother(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(d *Deps){
		"a node came": func(d *Deps) {
			d.Registry.session.publish(func(e *SessionEntry) { e.Members = []engine.Member{{ID: "b"}} })
		},
		"the runtime ends": func(d *Deps) { d.Refuse() },
		"heartbeats missed": func(d *Deps) {
			d.Registry.session.publish(func(e *SessionEntry) { e.HeartbeatSent = time.Time{} })
		},
	} {
		store, c := newClaim(12_000)
		store.claimed = func() { change(c.deps) }
		if err := c.run(t.Context()); err != nil || len(store.claims) != 1 {
			t.Errorf("%s: claims of %v leases, %v", name, store.claims, err)
		}
	}
}

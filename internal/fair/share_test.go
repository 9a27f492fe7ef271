package fair

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// pool runs a scheduler whose slots are always in use, and counts the grants.
type pool struct {
	*Scheduler
	granted []*Request
	counts  map[Flow]int
}

func newPool(slots int) *pool { return &pool{Scheduler: New(slots), counts: make(map[Flow]int)} }

func (p *pool) acquire(f Flow) *Request {
	r := &Request{Flow: f}
	if p.Acquire(r) {
		p.granted = append(p.granted, r)
	}
	return r
}

// release ends the grant with that index, and returns what is granted next.
func (p *pool) release(i int) *Request {
	r := p.granted[i]
	p.granted = slices.Delete(p.granted, i, i+1)
	next := p.Release(r)
	if next != nil {
		p.granted = append(p.granted, next)
		p.counts[next.Flow]++
	}
	return next
}

// shares follows by how much the shares of two flows that wait all the time differ.
type shares struct{ least, most float64 }

func (s *shares) add(difference float64) {
	s.least, s.most = min(s.least, difference), max(s.most, difference)
}

// Between any two moments, the grants of two that wait, each divided by its weight, differ by at most the sum of the
// inverse weights. Others come, go and give up meanwhile. The same holds for the tenants of a node and for the
// projections of a tenant.
func TestWaitingRequestsGetTheirShares(t *testing.T) {
	for name, flow := range map[string]func(i, weight int) Flow{
		"tenants": func(i, weight int) Flow {
			return Flow{Tenant: fmt.Sprint(i), TenantWeight: weight, Projection: "p"}
		},
		"tenants and requests for several": func(i, weight int) Flow {
			if i == 0 {
				return Flow{TenantWeight: weight}
			}
			return Flow{Tenant: fmt.Sprint(i), TenantWeight: weight, Projection: "p"}
		},
		"projections": func(i, weight int) Flow { return Flow{Tenant: "a", Projection: fmt.Sprint(i), Weight: weight} },
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				p := newPool(rapid.IntRange(1, 4).Draw(t, "slots"))
				weights := rapid.SliceOfN(rapid.IntRange(1, 9), 2, 5).Draw(t, "weights")
				var flows []Flow
				for i, weight := range weights {
					flows = append(flows, flow(i, weight))
				}
				for _, f := range slices.Concat(slices.Repeat(flows[:1], 5), flows, flows) {
					p.acquire(f)
				}
				clear(p.counts)
				between := make(map[[2]int]*shares)
				var others []*Request
				for range rapid.IntRange(10, 200).Draw(t, "releases") {
					switch other := rapid.IntRange(0, 9).Draw(t, "other"); {
					case other < 2:
						others = append(others, p.acquire(flow(10+other, 1)))
					case other == 3 && len(others) > 0:
						p.Cancel(others[0])
						others = others[1:]
					}
					if next := p.release(rapid.IntRange(0, len(p.granted)-1).Draw(t, "which")); slices.Contains(flows,
						next.Flow) {
						p.acquire(next.Flow) // so that it always waits
					}
					mustShare(t, p, flows, weights, between)
				}
			})
		})
	}
}

func mustShare(t *rapid.T, p *pool, flows []Flow, weights []int, between map[[2]int]*shares) {
	for i := range flows {
		for j := range flows[:i] {
			s := between[[2]int{i, j}]
			if s == nil {
				s = &shares{}
				between[[2]int{i, j}] = s
			}
			s.add(float64(p.counts[flows[i]])/float64(weights[i]) - float64(p.counts[flows[j]])/float64(weights[j]))
			if most := 1/float64(weights[i]) + 1/float64(weights[j]); s.most-s.least > most+1e-3 {
				t.Fatalf("the shares of %+v and %+v differ by %.3f, at most %.3f is fair", flows[i], flows[j],
					s.most-s.least, most)
			}
		}
	}
}

// Each of the projections has one request at a time, as those that catch up have.
func TestProjectionThatWaitsAgainAndAgainGetsItsShare(t *testing.T) {
	p := newPool(2)
	flow := func(i int) Flow { return Flow{Tenant: "a", Projection: fmt.Sprint(i), Weight: 1 + 2*(i%2)} }
	const projections, rounds = 20, 100
	for i := range projections {
		p.acquire(flow(i))
	}
	clear(p.counts)
	for range 2 * projections * rounds {
		ended := p.granted[0].Flow
		p.release(0)
		p.acquire(ended)
	}
	for i := range projections {
		if n := p.counts[flow(i)]; n < flow(i).Weight*rounds*9/10 || n > flow(i).Weight*rounds*11/10 {
			t.Errorf("projection %d of weight %d has %d grants, want about %d", i, flow(i).Weight, n,
				flow(i).Weight*rounds)
		}
	}
}

// Each request promises its slot before it ends, as batches do. The limit is that of all slots, or the share of the
// tenant.
func TestTenantsWhoseSlotsArePromisedGetTheirShares(t *testing.T) {
	const slots, rounds = 8, 1000
	for _, perTenant := range []int{0, 6, slots} {
		p := newPool(slots)
		p.LimitTenants(perTenant)
		light, heavy := Flow{Tenant: "light", TenantWeight: 1, Projection: "p"},
			Flow{Tenant: "heavy", TenantWeight: 3, Projection: "p"}
		for range 2 * slots {
			p.acquire(light)
			p.acquire(heavy)
		}
		clear(p.counts)
		heirs := make(map[*Request]*Request)
		for range rounds {
			// The commits of half of the slots are in progress.
			for len(heirs) < slots/2 {
				i := slices.IndexFunc(p.granted, func(r *Request) bool { return heirs[r] == nil })
				heirs[p.granted[i]] = p.Promise(p.granted[i])
				if heirs[p.granted[i]] == nil {
					t.Fatalf("with the limit %d nothing can have the slot of %s", perTenant, show(p.granted[i]))
				}
			}
			i := slices.IndexFunc(p.granted, func(r *Request) bool { return heirs[r] != nil })
			r := p.granted[i]
			p.granted = append(slices.Delete(p.granted, i, i+1), heirs[r])
			p.counts[heirs[r].Flow]++
			delete(heirs, r)
			if next := p.Release(r); next != nil {
				t.Fatalf("with the limit %d the promised slot goes to %s", perTenant, show(next))
			}
			p.acquire(r.Flow)
		}
		if n := p.counts[heavy]; n < rounds*3/4-slots || n > rounds*3/4+slots {
			t.Errorf("with the limit %d, %d of %d grants are of the tenant that should have %d", perTenant, n, rounds,
				rounds*3/4)
		}
	}
}

// The partitions of a projection share its weight.
func TestPartitionsShareTheWeightOfTheirProjection(t *testing.T) {
	p := newPool(2)
	whole, split := Flow{Tenant: "a", Projection: "whole"}, Flow{Tenant: "a", Projection: "split"}
	for range 50 {
		p.acquire(split)
	}
	for range 10 {
		p.acquire(whole)
	}
	clear(p.counts)
	for range 20 {
		p.release(0)
	}
	if p.counts[whole] != 10 || p.counts[split] != 10 {
		t.Errorf("%d grants for the projection that is split into 50, and %d for the other", p.counts[split],
			p.counts[whole])
	}
}

// A thousand projections of one tenant wait, and so do those of many other tenants that had slots lately.
func TestQuietTenantOvertakesTenantsThatFlood(t *testing.T) {
	p := newPool(3)
	for i := range 1000 {
		p.acquire(Flow{Tenant: "flood", TenantWeight: 9, Projection: fmt.Sprint(i)})
		p.acquire(Flow{Tenant: fmt.Sprint("busy", i%20), Projection: fmt.Sprint(i)})
	}
	for range 500 {
		p.release(0)
	}
	for i := range 10 {
		quiet := p.acquire(Flow{Tenant: fmt.Sprint("quiet", i), Projection: "p"})
		waits := 1
		for ; p.release(0) != quiet; waits++ {
		}
		if waits > 2 {
			t.Errorf("quiet tenant %d waited for %d slots", i, waits)
		}
	}
}

// The node's own statements come first, and those of a feed before those of its tenant's projections.
func TestStatementsOfTheNodeAndOfFeedsWaitForNoFlood(t *testing.T) {
	p := newPool(1)
	for i := range 100 {
		p.acquire(Flow{Tenant: fmt.Sprint(i % 10), Projection: fmt.Sprint(i)})
	}
	feed := p.acquire(Flow{Tenant: "3"})
	node := p.acquire(Flow{})
	if got := p.release(0); got != node {
		t.Errorf("the slot goes to %s", show(got))
	}
	for got := p.release(0); got != feed; got = p.release(0) {
		if got.Tenant == "3" {
			t.Fatalf("%s precedes its feed", show(got))
		}
	}
}

// The node and a feed request slots again and again.
func TestStatementsOfTheNodeAndOfFeedsStarveNoProjection(t *testing.T) {
	p := newPool(1)
	flows := []Flow{
		{}, {}, {Tenant: "a"}, {Tenant: "a"}, {Tenant: "a", Projection: "p"}, {Tenant: "b", Projection: "p"},
	}
	for _, f := range flows {
		p.acquire(f)
	}
	clear(p.counts)
	for range 800 {
		ended := p.granted[0].Flow
		p.release(0)
		p.acquire(ended)
	}
	for f, want := range map[Flow]int{{}: 400, {Tenant: "a"}: 100, {Tenant: "a", Projection: "p"}: 100,
		{Tenant: "b", Projection: "p"}: 200} {
		if n := p.counts[f]; n < want-5 || n > want+5 {
			t.Errorf("%+v has %d grants, want about %d", f, n, want)
		}
	}
}

func TestTenantAtItsLimitWaitsWhileSlotsAreFree(t *testing.T) {
	p := newPool(4)
	p.LimitTenants(2)
	for range 5 {
		p.acquire(Flow{Tenant: "a", Projection: "p"})
	}
	if n := len(p.granted); n != 2 {
		t.Fatalf("tenant a has %d slots", n)
	}
	p.acquire(Flow{Tenant: "b", Projection: "p"})
	if n := len(p.granted); n != 3 {
		t.Fatalf("tenant b has %d slots", n-2)
	}
	if next := p.LimitTenants(0); len(next) != 1 || next[0].Tenant != "a" {
		t.Errorf("without a limit, %d requests get slots", len(next))
	}
}

func TestRequestsForSeveralTenantsHaveNoLimitOfATenant(t *testing.T) {
	p := newPool(4)
	p.LimitTenants(1)
	for range 2 {
		p.acquire(Flow{Tenant: "a", TenantWeight: 1})
		p.acquire(Flow{TenantWeight: 1})
	}
	if n := len(p.granted); n != 3 {
		t.Errorf("%d requests have slots, want one of the tenant and two for several", n)
	}
}

func TestRequestReleasesItsSlotOnce(t *testing.T) {
	s, r := New(1), &Request{Flow: Flow{Tenant: "a"}}
	if !s.Acquire(r) {
		t.Fatal("there is no slot")
	}
	s.Release(r)
	defer func() {
		if recover() == nil {
			t.Error("it was released twice")
		}
	}()
	s.Release(r)
}

// Many tenants come, wait and go. Only a few places are kept for others that come.
func TestRemovedTenantsTakeNoMemory(t *testing.T) {
	p := newPool(2)
	for i := range 1000 {
		for range 3 {
			p.acquire(Flow{Tenant: fmt.Sprint("tenant", i), Projection: fmt.Sprint("p", i)})
		}
	}
	for len(p.granted) > 0 {
		p.release(0)
	}
	b := &p.root.below
	if len(b.places) != 0 || len(b.order) != 0 || len(b.spare) != mostSpare {
		t.Errorf("%d tenants are kept, %d turns are remembered, and there are %d spare places", len(b.places),
			len(b.order), len(b.spare))
	}
}

// Each feed that starts or stops sets the limit of the tenants, while thousands may wait.
func TestSettingTheSameLimitDoesNotWalkWaitingRequests(t *testing.T) {
	s := New(1)
	for i := range 1000 {
		s.Acquire(&Request{Flow: Flow{Tenant: fmt.Sprint(i)}})
	}
	s.LimitTenants(2)
	if n := testing.AllocsPerRun(10, func() { s.LimitTenants(2) }); n != 0 {
		t.Errorf("%v allocations, as if the tenants that wait were sorted", n)
	}
}

// The turn of those below passes on if none of them waits any more.
func TestOwnRequestsFollowEachOtherIfNoOtherWaits(t *testing.T) {
	p := newPool(1)
	p.acquire(Flow{})
	first, second, below := p.acquire(Flow{}), p.acquire(Flow{}), p.acquire(Flow{Tenant: "a", Projection: "p"})
	if got := p.release(0); got != first {
		t.Fatalf("%s got the slot", show(got))
	}
	p.Cancel(below)
	if got := p.release(0); got != second {
		t.Errorf("%s got the slot, not the request that waits", show(got))
	}
}

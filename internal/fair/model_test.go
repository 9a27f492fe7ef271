package fair

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model does what a Scheduler does, by the rules alone: it looks at everything for each decision, and forgets nothing.
type model struct {
	slots, perTenant int
	waiting          []*Request // in the order of their arrival
	granted          []*Request
	heirs            map[*Request]*Request // to whom granted requests have promised their slots
	late             []*Request            // whose promises were broken
	turns            map[string]*turn      // by path; "" is the root
	entered          int
}

// turn is what the model keeps of a place.
type turn struct {
	at, now, latest int64
	entered         int
	ready, recent   bool
	ownLast         bool
}

func (m *model) turn(path string) *turn {
	if m.turns[path] == nil {
		m.turns[path] = &turn{}
	}
	return m.turns[path]
}

// several is the path of requests for several tenants.
const several = "*"

// pathsOf are the places above a request, from the root down.
func pathsOf(r *Request) []string {
	paths := []string{""}
	switch {
	case r.Tenant != "":
		paths = append(paths, r.Tenant)
	case r.TenantWeight > 0:
		paths = append(paths, several)
	}
	if r.Projection != "" {
		paths = append(paths, r.Tenant+"/"+r.Projection)
	}
	return paths
}

// inUse returns how many slots a tenant has, or may have before it releases one.
func (m *model) inUse(tenant string) (n int) {
	for _, r := range m.granted {
		if r.Tenant == tenant {
			n++
		}
	}
	for r, heir := range m.heirs {
		if r.Tenant == tenant && heir.Tenant == tenant {
			n-- // they have one slot together
		}
	}
	return n
}

func (m *model) full(tenant string) bool {
	return tenant != "" && m.perTenant > 0 && m.inUse(tenant) >= m.perTenant
}

// possible reports whether a request could have a slot if one were free.
func (m *model) possible(r *Request) bool { return !m.full(r.Tenant) }

// below returns the places below a path at which requests wait that could have a slot, by path.
func (m *model) below(path string) map[string]*Request {
	found := make(map[string]*Request)
	for _, r := range m.waiting {
		paths := pathsOf(r)
		if at := slices.Index(paths, path); at >= 0 && at+1 < len(paths) && (path != "" || m.possible(r)) {
			if found[paths[at+1]] == nil {
				found[paths[at+1]] = r
			}
		}
	}
	return found
}

// update notes which places begin and cease to be ready.
func (m *model) update() {
	paths := []string{""}
	for _, r := range slices.Concat(m.waiting, m.granted) {
		paths = append(paths, pathsOf(r)...)
	}
	for path := range m.turns {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		parent, below := m.turn(path), m.below(path)
		var begin []string
		for _, child := range slices.Sorted(maps.Keys(m.turns)) {
			if m.turns[child].ready && below[child] == nil && isBelow(child, path) {
				m.turns[child].ready = false
			}
		}
		for child := range below {
			if !m.turn(child).ready {
				begin = append(begin, child)
			}
		}
		slices.Sort(begin)
		for _, child := range begin {
			t := m.turn(child)
			m.entered++
			t.ready, t.recent, t.at, t.entered = true, t.at > parent.now, max(t.at, parent.now), m.entered
		}
		if len(below) == 0 {
			parent.now = parent.latest
		}
		if !slices.ContainsFunc(m.waiting, func(r *Request) bool { return slices.Contains(pathsOf(r), path) }) {
			parent.ownLast = false
		}
	}
}

func isBelow(child, path string) bool {
	if path == "" {
		return child != "" && !slices.Contains([]byte(child), '/')
	}
	return len(child) > len(path) && child[:len(path)+1] == path+"/"
}

// used returns how many slots are in use. A request and its heir have one.
func (m *model) used() int { return len(m.granted) - len(m.heirs) }

// running are the granted requests whose slots are theirs already.
func (m *model) running() []*Request {
	heirs := slices.Collect(maps.Values(m.heirs))
	return slices.DeleteFunc(slices.Clone(m.granted), func(r *Request) bool { return slices.Contains(heirs, r) })
}

// next returns the request that gets the next slot.
func (m *model) next() *Request {
	m.update()
	if m.used() >= m.slots {
		return nil
	}
	if i := slices.IndexFunc(m.late, m.keepable); i >= 0 {
		return m.heirs[m.late[i]]
	}
	for path := ""; ; {
		below, t := m.below(path), m.turn(path)
		own := slices.IndexFunc(m.waiting, func(r *Request) bool { return pathsOf(r)[len(pathsOf(r))-1] == path })
		if own >= 0 && (!t.ownLast || len(below) == 0) {
			t.ownLast = len(below) > 0
			return m.waiting[own]
		}
		t.ownLast = false
		if len(below) == 0 {
			return nil
		}
		path = slices.MinFunc(slices.Collect(maps.Keys(below)), func(a, b string) int {
			x, y := m.turn(a), m.turn(b)
			if x.at == y.at && x.recent != y.recent {
				return map[bool]int{true: 1, false: -1}[x.recent]
			}
			return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.entered, y.entered))
		})
	}
}

// keepable reports whether the request that r's slot was promised to could have another slot.
func (m *model) keepable(r *Request) bool {
	tenant, slots := m.heirs[r].Tenant, 0
	if r.Tenant == tenant {
		slots++ // it has one of its own then
	}
	return tenant == "" || m.perTenant == 0 || m.inUse(tenant)+slots <= m.perTenant
}

// kept ends the promise of r's slot.
func (m *model) kept(r *Request) {
	delete(m.heirs, r)
	m.late = slices.DeleteFunc(m.late, func(other *Request) bool { return other == r })
}

// grant gives the request a slot. If it waited, it takes the turns of its places.
func (m *model) grant(r *Request, waited bool, weights map[string]int) {
	if paths := pathsOf(r); waited {
		for i, path := range paths[1:] {
			t, parent := m.turn(path), m.turn(paths[i])
			parent.now = t.at
			t.at, t.recent = t.at+unit/int64(weights[path]), true
			parent.latest = max(parent.latest, t.at)
			m.entered++
			t.entered = m.entered
		}
		m.waiting = slices.DeleteFunc(m.waiting, func(other *Request) bool { return other == r })
	}
	m.granted = append(m.granted, r)
	m.update()
}

// drive makes random calls of a scheduler and of the model, and compares them after each.
type drive struct {
	*rapid.T
	s       *Scheduler
	m       *model
	weights map[string]int
}

func (d *drive) acquire(t *rapid.T) {
	r, place := &Request{}, rapid.SampledFrom([]string{"", several, "a", "b", "c", "d"}).Draw(t, "place")
	r.TenantWeight = d.weights[place]
	if place != "" && place != several {
		r.Tenant, r.Projection = place, rapid.SampledFrom([]string{"", "p", "q", "r"}).Draw(t, "projection")
	}
	paths := pathsOf(r)
	r.Weight = d.weights[paths[len(paths)-1]]
	free := d.m.used() < d.m.slots && d.m.possible(r)
	try := rapid.Bool().Draw(t, "try")
	got := false
	if try {
		got = d.s.TryAcquire(r)
	} else {
		got = d.s.Acquire(r)
	}
	if got != free {
		t.Fatalf("%+v got a slot: %v, want %v", r.Flow, got, free)
	}
	switch {
	case free:
		d.m.grant(r, false, d.weights)
	case !try:
		d.m.waiting = append(d.m.waiting, r)
		d.m.update()
	}
}

func (d *drive) release(t *rapid.T) {
	if len(d.m.granted) == 0 {
		t.Skip("no slot is in use")
	}
	r := rapid.SampledFrom(d.m.running()).Draw(t, "which")
	d.m.kept(r)
	d.m.end(r)
	d.granted(t, d.s.Release(r))
}

func (m *model) end(r *Request) {
	m.granted = slices.DeleteFunc(m.granted, func(other *Request) bool { return other == r })
}

func (d *drive) promise(t *rapid.T) {
	running := slices.DeleteFunc(d.m.running(), func(r *Request) bool { return d.m.heirs[r] != nil })
	if len(running) == 0 {
		t.Skip("there is no slot to promise")
	}
	r := rapid.SampledFrom(running).Draw(t, "which")
	if len(d.m.late) > 0 {
		if heir := d.s.Promise(r); heir != nil {
			t.Fatalf("a slot is promised to %s, while the promise to another request is broken", show(heir))
		}
		return
	}
	d.m.end(r)
	heir := d.s.Promise(r)
	d.granted(t, heir)
	d.m.granted = append(d.m.granted, r)
	if heir != nil {
		d.m.heirs[r] = heir
	}
	d.m.update()
}

func (d *drive) takeBack(t *rapid.T) {
	for _, r := range d.m.running() {
		if heir := d.m.heirs[r]; heir != nil {
			d.m.kept(r)
			d.m.end(heir)
			d.granted(t, d.s.TakeBack(r))
			return
		}
	}
	t.Skip("no slot is promised")
}

func (d *drive) breakPromise(t *rapid.T) {
	for _, r := range d.m.running() {
		if d.m.heirs[r] != nil && !slices.Contains(d.m.late, r) {
			d.m.late = append(d.m.late, r)
			d.granted(t, d.s.Break(r))
			return
		}
	}
	t.Skip("no slot is promised")
}

// granted compares a grant with the model's.
func (d *drive) granted(t *rapid.T, got *Request) {
	want := d.m.next()
	if got != want {
		t.Fatalf("the slot goes to %s, want %s", show(got), show(want))
	}
	i := slices.IndexFunc(d.m.late, func(r *Request) bool { return d.m.heirs[r] == got })
	switch {
	case i >= 0:
		d.m.kept(d.m.late[i])
		d.m.update()
	case got != nil:
		d.m.grant(got, true, d.weights)
	}
}

func show(r *Request) string {
	if r == nil {
		return "nobody"
	}
	return fmt.Sprintf("%+v", r.Flow)
}

func (d *drive) cancel(t *rapid.T) {
	all := slices.Concat(d.m.waiting, d.m.granted)
	if len(all) == 0 {
		t.Skip("there is no request")
	}
	r := rapid.SampledFrom(all).Draw(t, "request")
	waits := slices.Contains(d.m.waiting, r)
	if got := d.s.Cancel(r); got != waits {
		t.Fatalf("cancelled %s: %v, want %v", show(r), got, waits)
	}
	d.m.waiting = slices.DeleteFunc(d.m.waiting, func(other *Request) bool { return other == r })
	d.m.update()
}

func (d *drive) limit(t *rapid.T) {
	d.m.perTenant = rapid.IntRange(0, 4).Draw(t, "per tenant")
	next := d.s.LimitTenants(d.m.perTenant)
	for _, r := range next {
		d.granted(t, r)
	}
	d.granted(t, nil)
}

// check holds what must be true at any time, whatever the order of the grants.
func (d *drive) check(t *rapid.T) {
	m := d.m
	if m.used() > m.slots {
		t.Fatalf("%d of %d slots are in use", m.used(), m.slots)
	}
	for _, r := range m.waiting {
		if m.used() < m.slots && m.possible(r) {
			t.Fatalf("%d of %d slots are in use, and %s waits", m.used(), m.slots, show(r))
		}
	}
	for _, r := range m.late {
		if m.used() < m.slots && m.keepable(r) {
			t.Fatalf("%d of %d slots are in use, and %s waits, whose promise was broken", m.used(), m.slots,
				show(m.heirs[r]))
		}
	}
	if d.s.free != m.slots-m.used() || d.s.root.waiting != len(m.waiting) {
		t.Fatalf("%d slots are free and %d requests wait, want %d and %d", d.s.free, d.s.root.waiting, m.slots-m.used(),
			len(m.waiting))
	}
	d.remembers(t)
}

// remembers checks that the places are those of requests, and those whose turn is still to come.
func (d *drive) remembers(t *rapid.T) {
	used := make(map[string]bool)
	for _, r := range d.m.waiting {
		for _, path := range pathsOf(r) {
			used[path] = true
		}
	}
	for _, r := range d.m.granted {
		used[pathsOf(r)[min(1, len(pathsOf(r))-1)]] = true
	}
	for tenant, place := range d.s.root.below.places {
		if !used[cmp.Or(tenant, several)] && (place.turn < d.s.root.below.now || len(d.m.below("")) == 0) {
			t.Fatalf("tenant %s is kept for nothing", tenant)
		}
		for projection, below := range place.below.places {
			if path := tenant + "/" + projection; !used[path] && (below.turn < place.below.now || place.waiting == 0) {
				t.Fatalf("projection %s is kept for nothing", path)
			}
		}
	}
}

func TestSchedulerDoesWhatTheModelDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 5).Draw(t, "slots")
		d := &drive{
			T: t, s: New(slots), m: &model{slots: slots,
				turns: make(map[string]*turn), heirs: make(map[*Request]*Request)}, weights: make(map[string]int),
		}
		d.weights[several] = rapid.IntRange(1, 4).Draw(t, "weight of several")
		for _, tenant := range []string{"a", "b", "c", "d"} {
			d.weights[tenant] = rapid.IntRange(1, 4).Draw(t, "weight of "+tenant)
			for _, projection := range []string{"p", "q", "r"} {
				d.weights[tenant+"/"+projection] = rapid.IntRange(1, 4).Draw(t, "weight of "+projection)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": d.acquire, "acquire more": d.acquire, "release": d.release, "cancel": d.cancel, "limit": d.limit,
			"promise": d.promise, "promise more": d.promise, "take back": d.takeBack, "break": d.breakPromise,
			"": d.check,
		})
		for len(d.m.granted) > 0 {
			d.release(t)
			d.check(t)
		}
		if n := len(d.s.root.below.places); n != 0 || len(d.m.waiting) != 0 {
			t.Fatalf("in the end %d tenants are kept, and %d requests wait", n, len(d.m.waiting))
		}
	})
}

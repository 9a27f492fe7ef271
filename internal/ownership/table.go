package ownership

import (
	"cmp"
	"slices"

	"github.com/millrace-go/millrace/internal/engine"
)

// Phase is what a node does with a lease that it holds.
type Phase string

const (
	// Running means that the projection runs.
	Running Phase = "running"
	// Draining means that the projection finishes the work under way. It begins no other.
	Draining Phase = "draining"
	// Releasing means that nothing of the projection runs, and that the database has yet to confirm the release.
	Releasing Phase = "releasing"
)

// Action is what a node asks of the supervisor about one lease.
type Action string

const (
	// Run starts the projection. It replaces what ran under an earlier lease of the row.
	Run Action = "run"
	// Drain lets the projection finish the work under way and then report that it is drained.
	Drain Action = "drain"
	// Retire stops the projection, whose lease is over.
	Retire Action = "retire"
	// Revalidate gives the projection its lease as the database has it.
	Revalidate Action = "revalidate"
	// Command reports to the projection that there are commands for its dead letters.
	Command Action = "command"
	// Resume reports to the projection that a user resumed it.
	Resume Action = "resume"
)

// Effect is an action on the lease with that key. Lease is set for Run and Revalidate.
type Effect struct {
	Action Action
	Key    engine.LeaseKey
	Lease  *engine.Lease
}

// Table has the leases that a node holds, as far as it knows. It decides what runs, what drains and what is released.
// Its methods record what happened and return what the node does next. Reports with the key of an earlier lease change
// nothing.
//
// The database is the authority: Read replaces what the table assumed.
type Table struct {
	leases map[int32]*held
	// ready are the rows in Releasing for the next release.
	ready []int32
	// releasing reports whether a release is under way. closing reports whether the node releases all its leases for
	// good.
	releasing, closing bool
	// ended has the leases that ended since BeginRead, since a read that began before may still list them. It is nil
	// while there is no read.
	ended map[engine.LeaseKey]bool
}

// held is a lease in the table. advance is set in Releasing, and failed reports whether its release failed.
type held struct {
	ref     engine.LeaseRef
	epoch   int64
	phase   Phase
	advance *engine.Advance
	failed  bool
}

// NewTable returns a table without leases.
func NewTable() *Table { return &Table{leases: make(map[int32]*held)} }

// Adopt adds a lease whose projection runs already, or drains, under an earlier actor of the node. The report of a
// drain may be lost, so the projection drains once more.
func (t *Table) Adopt(lease engine.Lease, draining bool) []Effect {
	h := t.add(lease, Running)
	if !draining {
		return nil
	}
	return t.drain(h)
}

// Claimed adds leases that the node claimed.
func (t *Table) Claimed(leases []engine.Lease) (effects []Effect) {
	for _, l := range leases {
		effects = append(effects, t.take(l)...)
	}
	return effects
}

// take adds a lease and runs its projection. If the node closes or the projection was paused meanwhile, the lease is
// released at once.
func (t *Table) take(lease engine.Lease) []Effect {
	if t.closing || !lease.Desired.Runs() {
		var effects []Effect
		if before := t.leases[lease.Row]; before != nil {
			effects = t.end(before)
		}
		t.release(t.add(lease, Releasing), engine.Advance{Lease: lease, To: lease.Checkpoint})
		return effects
	}
	t.add(lease, Running)
	return []Effect{{Action: Run, Key: lease.Key(), Lease: &lease}}
}

func (t *Table) add(lease engine.Lease, phase Phase) *held {
	h := &held{ref: engine.LeaseRef{Row: lease.Row, ID: lease.ID}, epoch: lease.Epoch, phase: phase}
	t.leases[lease.Row] = h
	return h
}

// Drain begins to release the leases of these rows that run.
func (t *Table) Drain(rows ...int32) (effects []Effect) {
	for _, row := range rows {
		if h := t.leases[row]; h != nil && h.phase == Running {
			effects = append(effects, t.drain(h)...)
		}
	}
	return effects
}

func (t *Table) drain(h *held) []Effect {
	h.phase = Draining
	return []Effect{{Action: Drain, Key: h.key()}}
}

// Close begins to release all leases. From then on claimed leases are released at once. A release that failed is tried
// again, since a node that closes no longer reads its leases.
func (t *Table) Close() (effects []Effect) {
	t.closing = true
	for row, h := range t.leases {
		if h.phase == Releasing && h.failed {
			t.release(h, *h.advance)
		}
		effects = append(effects, t.Drain(row)...)
	}
	return effects
}

// Len returns how many leases the table has.
func (t *Table) Len() int { return len(t.leases) }

// Closing reports whether the node releases all its leases.
func (t *Table) Closing() bool { return t.closing }

// Closed reports whether the table is closed and no lease is left.
func (t *Table) Closed() bool { return t.closing && len(t.leases) == 0 }

// Drained records that a projection is at rest, so that its lease can be released with that advance.
func (t *Table) Drained(advance engine.Advance) {
	if h := t.find(advance.Lease.Key()); h != nil && h.phase != Releasing {
		t.release(h, advance)
	}
}

func (t *Table) release(h *held, advance engine.Advance) {
	h.phase, h.advance, h.failed = Releasing, &advance, false
	t.ready = append(t.ready, h.ref.Row)
}

// releaseMost limits the leases of one release. A node that stops has all its leases ready within a second, and a
// statement on 100,000 would run into its time limit each time.
const releaseMost = 5000

// NextRelease returns the leases for the next release, which is one statement. It returns none while a release is under
// way.
func (t *Table) NextRelease() (advances []engine.Advance) {
	if t.releasing {
		return nil
	}
	taken := 0
	for _, row := range t.ready {
		if len(advances) == releaseMost {
			break
		}
		taken++
		if h := t.leases[row]; h != nil && h.phase == Releasing && !h.failed {
			advances = append(advances, *h.advance)
		}
	}
	t.ready = t.ready[taken:]
	if len(t.ready) == 0 {
		t.ready = nil
	}
	t.releasing = len(advances) > 0
	return advances
}

// Released records how a release ended. After an error the leases may be released all the same, so they keep their
// phase until the next Read. A node that closes reads no more leases, and treats these leases as released, and those of
// the next release, which would fail too: they end with the node.
func (t *Table) Released(advances []engine.Advance, err error) (effects []Effect) {
	t.releasing = false
	if err != nil && t.closing {
		for more := t.NextRelease(); len(more) > 0; more = t.NextRelease() {
			t.releasing, advances = false, append(slices.Clip(advances), more...)
		}
	}
	for _, a := range advances {
		h := t.find(a.Lease.Key())
		switch {
		case h == nil || h.phase != Releasing:
		case err == nil || t.closing:
			effects = append(effects, t.end(h)...)
		default:
			h.failed = true
		}
	}
	return effects
}

// Lost records that a lease is lost, and returns it. It returns none if the table does not have the lease.
func (t *Table) Lost(key engine.LeaseKey) (effects []Effect, lost []LostLease) {
	if h := t.find(key); h != nil {
		return t.end(h), []LostLease{{h.ref, h.epoch}}
	}
	return nil, nil
}

// LostLease is a lease that another node holds, or whose projection was removed.
type LostLease struct {
	engine.LeaseRef
	Epoch int64
}

func (t *Table) end(h *held) []Effect {
	delete(t.leases, h.ref.Row)
	if t.ended != nil {
		t.ended[h.key()] = true
	}
	return []Effect{{Action: Retire, Key: h.key()}}
}

// BeginRead is called before the node reads the leases that it owns. Read or a further BeginRead follows.
func (t *Table) BeginRead() { t.ended = make(map[engine.LeaseKey]bool) }

// Read compares the table with the leases that the node owns in the database. A lease that is not among them is lost,
// and is retired. A lease that the table does not have runs. With revalidate, projections that run get their lease;
// without, only those with commands do. Read returns the lost leases, without those that were being released.
func (t *Table) Read(owned []engine.Lease, revalidate bool) (effects []Effect, lost []LostLease) {
	listed := make(map[int32]bool, len(owned))
	for _, l := range owned {
		listed[l.Row] = true
	}
	for row, h := range t.leases {
		if listed[row] {
			continue
		}
		if h.phase != Releasing {
			lost = append(lost, LostLease{h.ref, h.epoch})
		}
		effects = append(effects, t.end(h)...)
	}
	for _, l := range owned {
		if !t.ended[l.Key()] {
			effects = append(effects, t.compare(l, revalidate)...)
		}
	}
	t.ended = nil
	return effects, lost
}

// compare compares a lease in the database with the table.
func (t *Table) compare(l engine.Lease, revalidate bool) []Effect {
	h := t.leases[l.Row]
	switch {
	case h == nil || h.epoch != l.Epoch || h.ref.ID != l.ID:
		return t.take(l)
	case h.phase == Releasing && h.failed:
		t.release(h, *h.advance)
	case h.phase != Running:
	case !l.Desired.Runs():
		return t.drain(h)
	case revalidate || l.HasCommands:
		return []Effect{{Action: Revalidate, Key: h.key(), Lease: &l}}
	}
	return nil
}

func (h *held) key() engine.LeaseKey { return engine.LeaseKey{Row: h.ref.Row, Epoch: h.epoch} }

// find returns the lease with that key, nil if the table has none.
func (t *Table) find(key engine.LeaseKey) *held {
	if h := t.leases[key.Row]; h != nil && h.epoch == key.Epoch {
		return h
	}
	return nil
}

// Lease returns the key and the phase of the lease of a row. The phase is empty if the node does not hold it.
func (t *Table) Lease(row int32) (engine.LeaseKey, Phase) {
	if h := t.leases[row]; h != nil {
		return h.key(), h.phase
	}
	return engine.LeaseKey{}, ""
}

// KeysOf returns the keys of the leases of these tenants.
func (t *Table) KeysOf(tenants map[string]bool) (keys []engine.LeaseKey) {
	for _, h := range t.leases {
		if tenants[h.ref.ID.Tenant] {
			keys = append(keys, h.key())
		}
	}
	return keys
}

// Keeps returns the leases that run, sorted by row.
func (t *Table) Keeps() []engine.LeaseRef {
	refs := make([]engine.LeaseRef, 0, len(t.leases))
	for _, h := range t.leases {
		if h.phase == Running {
			refs = append(refs, h.ref)
		}
	}
	slices.SortFunc(refs, func(a, b engine.LeaseRef) int { return cmp.Compare(a.Row, b.Row) })
	return refs
}

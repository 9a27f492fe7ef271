package actors

import (
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

const (
	// batchesKept and tenuresKept are how many batches, and how many earlier tenures, the entry of a projection keeps.
	batchesKept, tenuresKept = 4, 3
	// batchesReported is how many of them a summary has for each projection that it names.
	batchesReported = 2
)

// recent is what the entry of a projection keeps of the past. Most is nil until there is some.
type recent struct {
	waiters []waiter
	// began is when the tenure began whose epoch the entry has, and ended when it ended, zero while it goes on.
	began, ended stamp
	batches      *[batchesKept]endedBatch
	tenures      *[tenuresKept]endedTenure
}

// stamp is a time in microseconds since 1970, 0 for none.
type stamp int64

func stampOf(t time.Time) stamp { return stamp(t.UnixMicro()) }

func (s stamp) time() time.Time {
	if s == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(s)).UTC()
}

// endedBatch is a batch that had events or failed. Its end is 0 if there was none.
type endedBatch struct {
	ended  stamp
	took   time.Duration
	fault  string
	events int32
}

// endedTenure is a tenure that another one has followed. Its epoch is 0 if there was none.
type endedTenure struct {
	epoch        int64
	began, ended stamp
}

// begin records that a tenure begins, or goes on after a restart of the actor. before is the epoch of the tenure
// before.
func (c *recent) begin(before, epoch int64, now time.Time) {
	if before == epoch && c.began != 0 {
		c.ended = 0
		return
	}
	if c.began != 0 {
		if c.tenures == nil {
			c.tenures = new([tenuresKept]endedTenure)
		}
		copy(c.tenures[1:], c.tenures[:])
		c.tenures[0] = endedTenure{epoch: before, began: c.began, ended: c.ended}
	}
	c.began, c.ended = stampOf(now), 0
}

// batchEnded records a batch that had events or failed.
func (r *Registry) batchEnded(id projection.ID, b endedBatch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.projections[id]
	if p == nil || p.recent == nil {
		return
	}
	if p.recent.batches == nil {
		p.recent.batches = new([batchesKept]endedBatch)
	}
	copy(p.recent.batches[1:], p.recent.batches[:])
	p.recent.batches[0] = b
}

// record records the end of a batch in the registry.
func (w *worker) record(r machine.RunResult, took time.Duration) {
	b := endedBatch{ended: stampOf(time.Now()), took: took}
	switch r.End {
	case machine.RunApplied:
		b.events = int32(len(r.Batch.Events))
	case machine.RunFaulted:
	default:
		return
	}
	if r.Fault != nil {
		b.fault = string(faultOf(r))
	}
	if b.events > 0 || b.fault != "" {
		w.deps.Registry.batchEnded(w.id, b)
	}
}

// Past returns the tenures and the batches that this node remembers of a projection, the newest first.
func (r *Registry) Past(id projection.ID) (tenures []engine.Tenure, batches []engine.EndedBatch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.projections[id]
	if p == nil || p.recent == nil {
		return nil, nil
	}
	return p.tenures(), p.recent.reported(batchesKept)
}

func (p *registered) tenures() []engine.Tenure {
	c := p.recent
	list := []engine.Tenure{{ID: p.id, Epoch: p.epoch, Began: c.began.time(), Ended: c.ended.time()}}
	if c.tenures == nil {
		return list
	}
	for _, t := range c.tenures {
		if t.epoch != 0 {
			list = append(list, engine.Tenure{ID: p.id, Epoch: t.epoch, Began: t.began.time(), Ended: t.ended.time()})
		}
	}
	return list
}

// reported returns the last batches, at most that many.
func (c *recent) reported(most int) (list []engine.EndedBatch) {
	if c == nil || c.batches == nil {
		return nil
	}
	for _, b := range c.batches[:most] {
		if b.ended != 0 {
			list = append(list, engine.EndedBatch{Ended: b.ended.time(),
				Took: b.took, Events: int(b.events), Fault: b.fault})
		}
	}
	return list
}

// tenureChanged puts a tenure that began or ended at the end of the list of the last ones.
func (r *Registry) tenureChanged(p *registered) {
	now := p.tenures()[0]
	r.tenures = slices.DeleteFunc(r.tenures,
		func(t engine.Tenure) bool { return t.ID == now.ID && t.Epoch == now.Epoch })
	r.tenures = append(r.tenures, now)
	if more := len(r.tenures) - engine.MaxSummarized; more > 0 {
		r.tenures = slices.Delete(r.tenures, 0, more)
	}
}

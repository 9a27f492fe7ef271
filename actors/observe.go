package actors

import (
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/internal/observing"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
)

// observe reports a batch to the observer. It leaves out runs that found no event for the projection, and those that
// ended before a handler could be called without an error.
func (w *worker) observe(r machine.RunResult, queued, took time.Duration) {
	if r.End != machine.RunApplied && r.End != machine.RunFaulted {
		return
	}
	b := observe.Batch{
		Projection: w.id, Delivery: w.def.Delivers, Live: r.Live, Queued: queued, Duration: took,
		Position: r.Checkpoint,
	}
	if r.End == machine.RunApplied {
		b.Events = len(r.Batch.Events)
		for i := range r.Batch.Events {
			b.Bytes += r.Batch.Events[i].Size()
		}
		if b.Events > 0 {
			b.Oldest = r.Batch.Events[0].Time
		}
		done := r.Batch
		switch {
		case r.Partial != nil:
			done, _ = r.Partial.Split(r.Batch)
			b.Parked = len(r.Partial.Rejected)
		case r.Fault != nil:
			done = engine.Batch{To: r.Checkpoint}
		}
		b.Applied, b.Parked, b.Position = len(done.Events), b.Parked+len(done.BlockedByStream), done.To
	}
	if r.Fault != nil {
		b.Fault, b.Err = faultOf(r), usercode.Open(r.Fault.Err)
	}
	w.deps.Observer.BatchEnded(b)
}

// faultOf returns the kind of the fault of a batch that failed.
func faultOf(r machine.RunResult) observe.Fault {
	if r.Outage {
		return observe.FaultOutage
	}
	return observe.Fault(r.Fault.Class)
}

// report gives an event of the machine to the observer.
func (a *projectionActor) report(event any) {
	switch e := event.(type) {
	case observe.Failure:
		e.Err = usercode.Open(e.Err)
		observing.Call(a.worker.deps.Observer.EventFailed, e)
	case observe.Decision:
		e.Err = usercode.Open(e.Err)
		observing.Call(a.worker.deps.Observer.Decided, e)
	case observe.Replay:
		e.Err = usercode.Open(e.Err)
		observing.Call(a.worker.deps.Observer.Replayed, e)
	}
}

// published reports a change of the breaker to the observer.
func (a *projectionActor) published(before projection.BreakerState, now machine.Status) {
	if before == now.Breaker || before == "" {
		return
	}
	changed := observe.Breaker{Projection: a.worker.id, Before: before, State: now.Breaker}
	if now.Breaker == projection.BreakerOpen {
		changed.Reason = now.Reason
	}
	observing.Call(a.worker.deps.Observer.BreakerChanged, changed)
}

// observe reports a poll of the feed, and what holds back the settled mark, to the observer.
func (f *feed) observe(read observe.Read, u engine.TailUpdate) {
	read.Tenant, read.Events, read.Bytes, read.Mark = f.tenant, len(u.Events), u.Bytes, u.Mark
	observing.Call(f.deps.Observer.EventsRead, read)
	f.observeHeld(u.Held)
}

// observeHeld reports the begin and the end of a wait of the settled mark. Held is nil if nothing holds it back.
func (f *feed) observeHeld(held *engine.Held) {
	before := f.held
	f.held = held
	if (before == nil) == (held == nil) {
		return
	}
	hold := observe.Hold{Tenant: f.tenant, Mark: f.ref.mark.Load(), Ended: held == nil}
	if held == nil {
		held = before
	}
	hold.Below, hold.Holders, hold.Since = held.Below, held.Holders, held.Since
	observing.Call(f.deps.Observer.MarkHeld, hold)
}

// leaseClaimed reports a claimed lease of the node to the observer.
func (d *Deps) leaseClaimed(l engine.Lease) {
	observing.Call(d.Observer.LeaseChanged, observe.Lease{Projection: l.ID,
		Epoch: l.Epoch, Change: observe.LeaseClaimed, Takeover: l.CrashCount > 0})
}

// leaseChanged reports a lease of the node to the observer.
func (d *Deps) leaseChanged(id projection.ID, epoch int64, change observe.LeaseChange) {
	observing.Call(d.Observer.LeaseChanged, observe.Lease{Projection: id, Epoch: epoch, Change: change})
}

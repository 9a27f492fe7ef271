package kit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// Holder is a node that holds the lease of a projection of the default tenant. It works by the store's engine, without
// a runtime, so that tests can do what a runtime never does. The lease stays as it is until Refresh.
type Holder struct {
	*Bundle
	Port    store.Driver
	Node    engine.Node
	Session engine.Session
	Lease   engine.Lease
}

// Hold appends events to the stream s, and makes a node claim the projection p.
func (b *Bundle) Hold(events int) *Holder {
	b.T.Helper()
	if events > 0 {
		b.Append("s", events)
	}
	return b.HoldOf("p")
}

// Ensure makes the rows of projections.
func (b *Bundle) Ensure(projections ...engine.NewProjection) {
	b.T.Helper()
	_, err := b.Plane().Ensure(b.Ctx, projections)
	b.Must(err)
}

// HoldOf makes a node claim a projection.
func (b *Bundle) HoldOf(name string) *Holder {
	b.T.Helper()
	h := &Holder{Bundle: b, Port: b.Store.Engine(),
		Node: engine.Node{ID: uuid.NewString(), Projections: []string{name}, LeaseDuration: time.Hour}}
	b.Ensure(engine.NewProjection{Tenant: projection.DefaultTenant, Name: name, Partitions: 1})
	var err error
	h.Session, err = h.Port.Connect(b.Ctx, h.Node)
	b.Must(err)
	session := h.Session
	b.T.Cleanup(func() { _ = session.Close(context.Background()) })
	free, err := h.Port.Free(b.Ctx, h.Node, false, true)
	b.Must(err)
	var rows []int32
	for _, ref := range free {
		rows = append(rows, ref.Row)
	}
	leases, err := h.Port.Claim(b.Ctx, h.Node, rows, false)
	b.Must(err)
	if len(leases) != 1 {
		b.T.Fatalf("claimed %+v of the free leases %+v", leases, free)
	}
	h.Lease = leases[0]
	return h
}

// Next stops the node gracefully, and makes another one claim the projection. The previous node still believes in its
// lease.
func (h *Holder) Next() *Holder {
	h.T.Helper()
	h.End()
	return h.HoldOf(h.Lease.ID.Name)
}

// End stops the node gracefully, unless it has ended.
func (h *Holder) End() {
	h.T.Helper()
	if h.Session == nil {
		return
	}
	release := h.Port.Release(h.Ctx, []engine.Advance{{Lease: h.found()}})
	h.Must(errors.Join(release, h.Session.Deregister(h.Ctx), h.Session.Close(h.Ctx)))
	h.Session = nil
}

// Refresh reads the lease again.
func (h *Holder) Refresh() {
	h.T.Helper()
	found := h.found()
	h.Must(h.Lease.Check(found, true))
	h.Lease = found
}

// Checkpoint returns the checkpoint in the store, whoever holds the lease.
func (h *Holder) Checkpoint() int64 {
	h.T.Helper()
	return h.found().Checkpoint
}

func (h *Holder) found() engine.Lease {
	h.T.Helper()
	found, err := h.Port.Leases(h.Ctx, []int32{h.Lease.Row})
	h.Must(err)
	if len(found) != 1 {
		h.T.Fatalf("found the leases %+v", found)
	}
	return found[0]
}

// Pending reads the events after the checkpoint of the lease.
func (h *Holder) Pending() []event.Envelope {
	h.T.Helper()
	page, err := h.Port.Read(h.Ctx, projection.DefaultTenant,
		engine.ReadRange{After: h.Lease.Checkpoint, UpTo: h.Head(), Limit: 1000, MaxBytes: 1 << 20})
	h.Must(err)
	if len(page.Events) == 0 {
		h.T.Fatal("there is nothing to handle")
	}
	return page.Events
}

// batch returns a batch of all pending events.
func (h *Holder) batch() engine.Batch {
	h.T.Helper()
	events := h.Pending()
	return engine.Batch{Events: events, To: events[len(events)-1].Position}
}

// Apply runs one batch over all pending events. The handler gets 30 seconds unless the options say otherwise.
func (h *Holder) Apply(f BatchFunc, o engine.ApplyOptions) error {
	h.T.Helper()
	return h.ApplyWithin(h.Ctx, h.Store.Batch(f), o)
}

// ApplyWithin is Apply with a context and a handler of the caller.
func (h *Holder) ApplyWithin(ctx context.Context, handler millrace.Handler, o engine.ApplyOptions) error {
	h.T.Helper()
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	return h.Port.Apply(handler.Engine(), o)(ctx, h.Lease, h.batch())
}

// RecordAnd is a handler that records its events and then does something else.
func RecordAnd(then func(ctx context.Context, tx Tx) error) BatchFunc {
	return func(ctx context.Context, tx Tx, events []event.Envelope) error {
		return errors.Join(tx.Record(ctx, "p", events...), then(ctx, tx))
	}
}

// Untouched checks that neither the read model nor the checkpoint moved since the lease was read.
func (h *Holder) Untouched() {
	h.T.Helper()
	if applied, at := h.Positions("p"), h.Checkpoint(); len(applied) != 0 || at != h.Lease.Checkpoint {
		h.T.Errorf("applied %v, checkpoint %d, want nothing and %d", applied, at, h.Lease.Checkpoint)
	}
}

// HasApplied checks that the first n positions were applied once, in order, and that the checkpoint is there.
func (h *Holder) HasApplied(n int64) {
	h.T.Helper()
	var want []int64
	for p := range n {
		want = append(want, p+1)
	}
	if applied, at := h.Positions("p"), h.Checkpoint(); !slices.Equal(applied, want) || at != n {
		h.T.Errorf("applied %v, checkpoint %d, want %v", applied, at, want)
	}
}

// MustBe checks the class of an error, and returns it as a fault.
func (h *Holder) MustBe(err error, want faults.Class) *faults.Fault {
	h.T.Helper()
	if err == nil {
		h.T.Fatalf("no error, want a fault of class %q", want)
	}
	fault := h.Port.Classify(err)
	if fault.Class != want {
		h.T.Errorf("%v: class %q, want %q", err, fault.Class, want)
	}
	return fault
}

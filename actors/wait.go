package actors

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/projection"
)

// began records that a projection begins to run under a lease of that epoch, and how many partitions it has.
func (r *Registry) began(id projection.ID, epoch int64, partitions int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.entry(id)
	if epoch != p.epoch {
		p.standing = standing{} // another node may have run it meanwhile
	}
	if p.recent == nil {
		p.recent = &recent{}
	}
	p.recent.begin(p.epoch, epoch, time.Now())
	p.epoch, p.partitions, p.drained = epoch, int32(partitions), false
	r.tenureChanged(p)
	id.Partition = 0
	r.partitions[id] = partitions
	if partitions <= 1 {
		delete(r.partitions, id)
	}
}

// drained records that a projection has ended its work.
func (r *Registry) drained(id projection.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.entry(id)
	p.drained = true
	r.changed(p, p.countedAs())
}

// Outdate is called after the checkpoints of a projection were reset under an epoch. The entries that began under this
// epoch or an earlier one count as absent from then on, although this node has not been notified of the reset yet.
func (r *Registry) Outdate(id projection.ID, epoch int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, p := range r.projections {
		if of.Tenant == id.Tenant && of.Name == id.Name {
			p.outdated = epoch
			r.changed(p, p.countedAs())
		}
	}
}

// parts returns the entries of a projection's partitions, nil for partitions that this node never ran. If id names a
// partition, parts returns only its entry. After a change of the number of partitions, an earlier entry may have the
// number of another partition.
func (r *Registry) parts(id projection.ID) []*registered {
	n := r.partitions[id] // 0 for a partition
	parts := make([]*registered, 0, max(1, n))
	for _, number := range partition.Numbers(n) {
		if n > 1 {
			id.Partition = number
		}
		p := r.projections[id]
		if p != nil && n > 1 && int(p.partitions) != n {
			p = nil
		}
		parts = append(parts, p)
	}
	return parts
}

// reached returns the result of WaitFor. It reports false while WaitFor has to wait.
func (r *Registry) reached(id projection.ID, position int64) (err error, final bool) {
	final = true
	for _, p := range r.parts(id) {
		answer, ended := p.reached(position)
		if answer != nil && (err == nil || errors.Is(err, ErrNotHere)) {
			err = answer
		}
		final = final && ended
	}
	return err, final || err != nil
}

// Reached returns the result of WaitFor, without waiting. It reports false if WaitFor would wait.
func (r *Registry) Reached(id projection.ID, position int64) (err error, final bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reached(id, position)
}

// ReachedBy reports whether a partition of a projection runs on this node and has reached a position. If the projection
// had another number of partitions when it began to run, it is not that partition.
func (r *Registry) ReachedBy(id projection.ID, partitions int, position int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.projections[id]
	err, final := p.reached(position)
	return final && err == nil && int(p.partitions) == partitions
}

// Halted reports whether the projection, or one of its partitions on this node, waits for a user after a failure.
func (r *Registry) Halted(id projection.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.parts(id), func(p *registered) bool { return p != nil && p.Halted })
}

// WaitFor returns when the projection, with all of its partitions, has handled or passed over all events up to
// position. Otherwise it returns an error: of ctx, ErrNotHere, or projection.ErrFailed with the reason.
func (r *Registry) WaitFor(ctx context.Context, id projection.ID, position int64) error {
	for {
		w := waiter{position: position, final: make(chan struct{}, 1)}
		err, final := r.await(id, w)
		if final {
			return err
		}
		select {
		case <-w.final:
		case <-ctx.Done():
		}
		r.leave(id, w)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// await adds a waiter to the partitions that have not reached its position, unless the answer is final.
func (r *Registry) await(id projection.ID, w waiter) (err error, final bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err, final = r.reached(id, w.position)
	if final {
		return err, true
	}
	for _, p := range r.parts(id) {
		if _, ended := p.reached(w.position); !ended {
			if p.recent == nil {
				p.recent = &recent{}
			}
			p.recent.waiters = append(p.recent.waiters, w)
		}
	}
	return nil, false
}

// leave removes a waiter.
func (r *Registry) leave(id projection.ID, w waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.parts(id) {
		if p != nil && p.recent != nil {
			p.recent.waiters = slices.DeleteFunc(p.recent.waiters, func(other waiter) bool { return other == w })
		}
	}
}

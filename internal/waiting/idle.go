package waiting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

const (
	// firstPoll and lastPoll bound the time between two rounds of waiting for projections.
	firstPoll, lastPoll = 10 * time.Millisecond, 250 * time.Millisecond
	// idleSlice is how many tenants' projections one statement reads.
	idleSlice = 250
)

// Heads returns the heads of the tenants of these projections. It waits for tenants whose events are locked.
func (w Waiter) Heads(ctx context.Context, ids []projection.ID) (map[string]int64, error) {
	var tenants []string
	for _, id := range ids {
		if len(tenants) == 0 || tenants[len(tenants)-1] != id.Tenant {
			tenants = append(tenants, id.Tenant)
		}
	}
	var heads engine.Heads
	err := backoff.Poll(ctx, lastPoll, lastPoll, func() (done bool, err error) {
		heads, err = w.Store.Heads(ctx, tenants)
		if err != nil {
			return false, err
		}
		for tenant, err := range heads.Failed {
			if !errors.Is(err, tenancy.ErrLocked) {
				return false, fmt.Errorf("read the head of tenant %q: %w", tenant, err)
			}
		}
		return len(heads.Failed) == 0, nil
	})
	if err != nil {
		return nil, err
	}
	for _, tenant := range tenants {
		if _, ok := heads.Positions[tenant]; !ok {
			if err := w.Store.Absent(ctx, tenant); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("tenant %q was restored meanwhile: %w", tenant, tenancy.ErrDropped)
		}
	}
	return heads.Positions, nil
}

// Idle waits until projections of the running Runtime have reached the heads of their tenants, or cannot reach them.
// The error is why the first of the latter cannot, in the order of their ids.
func (w Waiter) Idle(ctx context.Context, ids []projection.ID, heads map[string]int64) error {
	i := idleWait{
		Waiter: w, deps: w.Running(), heads: heads, pending: make(map[projection.ID]bool),
		stuck: make(map[projection.ID]error),
	}
	for _, id := range ids {
		i.pending[id] = false
	}
	err, stuck := i.wait(ctx), i.firstStuck()
	if err != nil && stuck != nil {
		return fmt.Errorf("%w; before that: %w", err, stuck)
	}
	return cmp.Or(err, stuck)
}

// idleWait waits until all projections of a runtime have handled their tenants' events. It sends one statement at a
// time, and only about projections that do not run on this node.
type idleWait struct {
	Waiter
	deps  *actors.Deps
	heads map[string]int64
	// pending has the projections that have not reached their heads; true means that their rows have been read once.
	pending map[projection.ID]bool
	// stuck has the projections that will not reach their heads, and why.
	stuck map[projection.ID]error
}

// wait returns when all projections that are pending are stuck.
func (w *idleWait) wait(ctx context.Context) error {
	var here []projection.ID
	return w.Rounds(ctx, backoff.New(firstPoll, lastPoll), func(ctx context.Context) (over bool, err error) {
		clear(w.stuck) // it may have been resumed
		var ask []string
		ask, here = w.registered()
		for tenants := range slices.Chunk(ask, idleSlice) {
			err = cmp.Or(err, w.inDatabase(ctx, tenants))
		}
		return err == nil && len(w.pending) == len(w.stuck), err
	}, func(round context.Context) { w.pause(round, here) })
}

// registered checks the projections that run on this node. It returns the tenants whose rows must be read, and the
// pending projections that run here.
func (w *idleWait) registered() (ask []string, here []projection.ID) {
	asked := make(map[string]bool)
	for id, checked := range w.pending {
		answer, final := w.deps.Registry.Reached(id, w.heads[id.Tenant])
		switch {
		case !checked, errors.Is(answer, actors.ErrNotHere):
			asked[id.Tenant] = true
		case answer != nil && w.deps.Registry.Halted(id):
			asked[id.Tenant] = true // it may have been resumed
		case answer != nil:
			w.setStuck(id, answer)
		case final:
			delete(w.pending, id)
		default:
			here = append(here, id)
		}
	}
	return slices.Sorted(maps.Keys(asked)), here
}

// setStuck keeps why a projection, or one of its partitions, will not reach its head.
func (w *idleWait) setStuck(id projection.ID, err error) {
	whole := projection.ID{Tenant: id.Tenant, Name: id.Name}
	w.stuck[whole] = fmt.Errorf("wait for %s to reach %d: %w", id, w.heads[id.Tenant], err)
}

// firstStuck returns the error of the first projection that is stuck.
func (w *idleWait) firstStuck() error {
	if len(w.stuck) == 0 {
		return nil
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(w.stuck)), engine.CompareIDs)
	if others := len(w.stuck) - 1; others > 0 {
		return fmt.Errorf("%w (and %d more)", w.stuck[first], others)
	}
	return w.stuck[first]
}

// inDatabase checks the rows of these tenants' pending projections.
func (w *idleWait) inDatabase(ctx context.Context, tenants []string) error {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	rows := make(map[projection.ID][]engine.ProjectionRow)
	var now engine.Heads
	if err := w.deps.Limiter.Read(ctx, func(ctx context.Context) error {
		list, err := w.Plane.Projections(ctx, engine.ProjectionFilter{Tenants: tenants, Names: w.deps.Node.Projections})
		if err != nil {
			return err
		}
		var ahead []string // tenants with a checkpoint above the head
		for _, row := range list {
			whole := projection.ID{Tenant: row.ID.Tenant, Name: row.ID.Name}
			rows[whole] = append(rows[whole], row)
			if row.Checkpoint > w.heads[row.ID.Tenant] {
				ahead = append(ahead, row.ID.Tenant)
			}
		}
		// Either more was appended and applied meanwhile, or events are gone. A head that is read after the checkpoint
		// shows which.
		now, err = w.Store.Heads(ctx, slices.Compact(ahead))
		return err
	}); err != nil {
		return err
	}
	if err := w.findAbsent(ctx, tenants, rows); err != nil {
		return err
	}
	for id, checked := range w.pending {
		if _, asked := slices.BinarySearch(tenants, id.Tenant); !asked {
			continue
		}
		done, stuck := len(rows[id]) > 0, false // without rows they are about to be made
		for _, row := range rows[id] {
			reached, err := w.reached(row, now.Positions, checked)
			if err != nil {
				w.setStuck(row.ID, err)
				done, stuck = false, true
				break
			}
			done = done && reached
		}
		w.pending[id] = checked || !stuck
		if done {
			delete(w.pending, id)
		}
	}
	return nil
}

// findAbsent finds those of these tenants' pending projections without rows that get none: their names are retired, or
// their tenants were archived or dropped meanwhile.
func (w *idleWait) findAbsent(ctx context.Context, tenants []string,
	rows map[projection.ID][]engine.ProjectionRow) error {
	absent := make(map[projection.ID]bool)
	var of, again, names []string
	for id, checked := range w.pending {
		if _, asked := slices.BinarySearch(tenants, id.Tenant); asked && len(rows[id]) == 0 {
			absent[id] = true
			of, names = append(of, id.Tenant), append(names, id.Name)
			if checked {
				again = append(again, id.Tenant)
			}
		}
	}
	if len(absent) == 0 {
		return nil
	}
	retired, err := w.retired(ctx, distinct(of), distinct(names))
	for _, r := range retired {
		if id := (projection.ID{Tenant: r.Tenant, Name: r.Name}); absent[id] {
			w.setStuck(id, r)
		}
	}
	if len(again) == 0 || err != nil {
		return err
	}
	again = distinct(again)
	found, err := w.Store.Tenants(ctx, again)
	if err != nil {
		return err
	}
	for id := range absent {
		if _, checked := slices.BinarySearch(again, id.Tenant); !checked || w.stuck[id] != nil {
			continue
		}
		at := slices.IndexFunc(found, func(t engine.Tenant) bool { return t.Name == id.Tenant })
		switch {
		case at < 0:
			w.setStuck(id, tenancy.ErrUnknown)
		case !awake(found[at].State):
			w.setStuck(id, pausedBecause(found[at].State))
		}
	}
	return nil
}

// distinct sorts a list and removes repeated entries.
func distinct(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// reached reports whether a projection has reached its head by its row. The error says why it will not. A projection
// that is paused or has failed is an error also if it has nothing to handle, but only when it is checked first.
func (w *idleWait) reached(row engine.ProjectionRow, now map[string]int64, checked bool) (done bool, err error) {
	head := w.heads[row.ID.Tenant]
	done = row.Checkpoint >= head || reachedHere(w.deps, row, head)
	if done && checked {
		return true, nil
	}
	switch head, read := now[row.ID.Tenant]; {
	case !row.Desired.Runs():
		return false, projection.ErrPaused
	case row.Halted, row.Failed != "" && row.OwnerAlive && !done:
		return false, Failure(row.Failed)
	case read && row.Checkpoint > head:
		return false, fmt.Errorf("%w: %w", projection.ErrFailed, tenancy.ErrRestored)
	}
	return done, nil
}

// pause waits for the end of the round, or until all that are pending run here and are done.
func (w *idleWait) pause(round context.Context, here []projection.ID) {
	for _, id := range here {
		if err := w.deps.Registry.WaitFor(round, id, w.heads[id.Tenant]); err != nil && round.Err() == nil {
			return // the next round finds out why
		}
	}
	if len(here) < len(w.pending) {
		<-round.Done()
	}
}

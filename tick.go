package millrace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/internal/waiting"
	"github.com/millrace-go/millrace/projection"
)

// TickState says what a call of Runtime.Tick did, or why it did nothing.
type TickState string

const (
	// TickProcessed means that events were handled, parked or skipped.
	TickProcessed TickState = "processed"
	// TickIdle means that there was no event to handle.
	TickIdle TickState = "idle"
	// TickPaused means that the projection or its tenant is paused, or that the tenant is archived or being dropped.
	TickPaused TickState = "paused"
	// TickWaiting means that an event failed, a database object is missing or a circuit breaker is open, and that a
	// later Tick tries again.
	TickWaiting TickState = "waiting"
	// TickOwned means that another node runs the projection.
	TickOwned TickState = "owned by another"
)

// Tick is the result of Runtime.Tick.
type Tick struct {
	State TickState
	// Processed is how many events were handled, parked or skipped.
	Processed int64
	// Until is when a projection that waits is due to try again. It is zero if that is not known. Reason is why a
	// projection waits, or why the projections of its tenant do not run.
	Until  time.Time
	Reason string
	// Owner is the ID of the node that runs the projection, if State is TickOwned.
	Owner string
}

// Tick runs one step of one projection and returns, for programs that run projections from a schedule instead of a
// server. It claims the lease, runs one batch or delivery, and releases the lease. As in a running Runtime, a batch
// that fails is narrowed. Failures are counted, and retries are delayed, across calls. The runtime must not be running
// meanwhile. Each call connects to the database and registers a node, so a Tick costs far more than a batch of a
// running Runtime.
//
// If the projection is split, id names one of its partitions. Replays of dead letters need a running Runtime. If
// another process owns a store in a file and does not run the projection, Tick waits until that one ends.
//
// Tick returns projection.ErrUnknownProjection for a projection that is not registered, and for a partition that does
// not exist, projection.ErrRetired for a retired name, and tenancy.ErrUnknown. It returns projection.ErrFailed while
// the projection has failed and was not resumed. If it fails in this call, errors.Is and errors.As also find the error
// of its handler.
func (r *Runtime) Tick(ctx context.Context, id ProjectionID) (Tick, error) {
	id = engine.FullID(id)
	t, err := r.tick(ctx, id)
	if err != nil {
		return Tick{}, fmt.Errorf("tick %s: %w", id, err)
	}
	return t, nil
}

func (r *Runtime) tick(ctx context.Context, id ProjectionID) (Tick, error) {
	if (self{r}).Definition(id) == nil {
		return Tick{}, projection.ErrUnknownProjection
	}
	before, err := r.tickRow(ctx, id)
	if err != nil {
		return Tick{}, err
	}
	if t, err := standing(before); t.State != "" || err != nil {
		return t, err
	}
	if before.ID.Name == "" {
		if asleep, err := r.waiter.Absent(ctx, id); asleep != "" || err != nil {
			return Tick{State: TickPaused, Reason: asleep}, err
		}
	}
	r.mu.Lock()
	def := *r.definitions[id.Name]
	r.mu.Unlock()
	s := &stepper{runtime: r, id: id, apply: def.Apply, done: make(chan struct{})}
	def.Apply = s.run
	only := &scope{definitions: map[string]*engine.Definition{id.Name: &def}, tenants: []string{id.Tenant}}
	if err := r.run(ctx, only, s.wait); s.asleep != "" || err != nil {
		return Tick{State: TickPaused, Reason: s.asleep}, err
	}
	after, err := r.tickRow(ctx, id)
	if err != nil {
		return Tick{}, err
	}
	return s.result(before, after)
}

// tickRow returns the row of the projection, or the zero value before it ran for the first time.
func (r *Runtime) tickRow(ctx context.Context, id ProjectionID) (row engine.ProjectionRow, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.tuning.Query)
	defer cancel()
	rows, err := r.plane.Projections(ctx, engine.ProjectionFilter{Tenants: []string{id.Tenant},
		Names: []string{id.Name}})
	if err != nil {
		return row, err
	}
	r.mu.Lock()
	partitions := r.definitions[id.Name].Partitions
	r.mu.Unlock()
	if len(rows) > 0 {
		partitions = rows[0].Partitions
	}
	if at := slices.IndexFunc(rows, func(row engine.ProjectionRow) bool { return row.ID == id }); at >= 0 {
		return rows[at], nil
	}
	switch {
	case id.Partition > partitions || id.Partition > 0 && partitions == 1:
		return row, fmt.Errorf("partition %d: %w: there are %d",
			id.Partition, projection.ErrUnknownProjection, partitions)
	case id.Partition == 0 && partitions > 1:
		return row, fmt.Errorf("the id must name one of its %d partitions", partitions)
	}
	return row, nil
}

// standing returns why a projection cannot take a step now.
func standing(row engine.ProjectionRow) (t Tick, err error) {
	switch {
	case row.ID.Name == "":
	case !row.Desired.Runs():
		t = Tick{State: TickPaused, Reason: waiting.Asleep(row.Tenant)}
	case row.Owner != "" && row.OwnerAlive:
		t = Tick{State: TickOwned, Owner: row.Owner}
	case row.Halted:
		err = waiting.Failure(row.Failed)
	case row.FailingPosition > row.Checkpoint && time.Until(row.NextAttempt) > 0:
		t = Tick{State: TickWaiting, Until: row.NextAttempt, Reason: row.LastError}
	}
	return t, err
}

// stepper lets a projection take one step of a run.
type stepper struct {
	runtime *Runtime
	id      ProjectionID
	apply   engine.ApplyFunc
	done    chan struct{}

	mu sync.Mutex
	// begun reports that a batch began, at the checkpoint from. over reports that the step is done. applied counts its
	// events.
	begun, over   bool
	from, applied int64

	// seen is what the projection did last on this node. asked is when its row was read last, and asleep why it has
	// none if the tenant is archived.
	seen   actors.ProjectionEntry
	asked  time.Time
	asleep string
}

var errStepOver = errors.New("the step is over")

// run is the ApplyFunc of the projection. Until the checkpoint moves, batches of the step may follow each other: a
// batch that fails is narrowed.
func (s *stepper) run(ctx context.Context, lease engine.Lease, batch engine.Batch) error {
	if !s.begin(lease) {
		if deps := s.runtime.running(); deps != nil && lease.ID == s.id {
			select {
			case <-deps.Refused():
			case <-ctx.Done():
			}
		}
		return &faults.Fault{Class: faults.Infrastructure, Err: errStepOver}
	}
	err := s.apply(ctx, lease, batch)
	var partial *engine.PartialResult
	done := batch
	if errors.As(err, &partial) {
		done, _ = partial.Split(batch)
	}
	if batch.Replay == nil && (err == nil || partial != nil && partial.To > lease.Checkpoint) {
		s.end(int64(len(done.Events)))
	}
	return err
}

// begin reports whether a batch at that lease belongs to the step.
func (s *stepper) begin(lease engine.Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over || lease.ID != s.id:
		return false
	case s.begun && lease.Checkpoint != s.from: // its event was parked or skipped
		s.finish()
		return false
	}
	s.begun, s.from = true, lease.Checkpoint
	return true
}

// end ends the step, which has applied that many events.
func (s *stepper) end(applied int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied += applied
	s.finish()
}

// finish ends the step. The caller holds s.mu.
func (s *stepper) finish() {
	if !s.over {
		s.over = true
		close(s.done)
	}
}

// lookEvery is how often a Tick looks at what the projection does on this node, and askEvery how often at its row.
const lookEvery, askEvery = 5 * time.Millisecond, 250 * time.Millisecond

// wait waits until the step is done, or cannot be done now.
func (s *stepper) wait(ctx context.Context) error {
	defer s.end(0) // no batch begins any more
	s.asked = time.Now()
	return s.runtime.waiter.Rounds(ctx, backoff.New(lookEvery, lookEvery), s.look, func(round context.Context) {
		select {
		case <-s.done:
		case <-round.Done():
		}
	})
}

// look reports whether the step is done, or cannot be done now. A short wait after a fault of the database is part of
// the step.
func (s *stepper) look(ctx context.Context) (over bool, err error) {
	select {
	case <-s.done:
		return true, nil
	default:
	}
	phase, settled := s.phase()
	switch {
	case settled && phase == admin.StateLive && s.seen.Position >= s.seen.Mark:
		return true, nil
	case settled && (phase == admin.StateMissingObject || phase == admin.StateFailed):
		return true, nil
	case time.Since(s.asked) < askEvery:
		return false, nil
	}
	s.asked = time.Now()
	row, err := s.runtime.tickRow(ctx, s.id)
	if err == nil && row.ID.Name == "" {
		s.asleep, err = s.runtime.waiter.Absent(ctx, s.id)
	}
	if s.asleep != "" || err != nil {
		return s.asleep != "", err
	}
	own := row.Owner == s.runtime.running().Node.ID
	if own {
		row.Owner = ""
	}
	t, failed := standing(row)
	if own && (failed != nil || t.State == TickWaiting) {
		// Its entry follows the row. It has the error itself, and the row of a projection that fails says first that it
		// waits.
		phase, settled = s.phase()
		return settled && failed == nil && phase == admin.StateWaiting, nil
	}
	return t.State != "" || failed != nil, nil
}

// phase returns the phase of the projection, and whether it runs here and has no job in progress.
func (s *stepper) phase() (phase admin.State, settled bool) {
	entry, here := s.runtime.running().Registry.Get(s.id)
	if !here || !entry.Busy.IsZero() || entry.Queued {
		return "", false
	}
	s.seen = entry
	return admin.State(entry.Phase), true
}

// result returns the result of the step by the rows before and after it.
func (s *stepper) result(before, after engine.ProjectionRow) (Tick, error) {
	n := s.applied + max(0, after.Parked-before.Parked) + max(0, after.Skipped-before.Skipped)
	if n > 0 {
		return Tick{State: TickProcessed, Processed: n}, nil
	}
	t, err := standing(after)
	failed := admin.State(s.seen.Phase) == admin.StateFailed
	switch {
	case failed && s.seen.Reason != nil && t.State == "":
		return t, fmt.Errorf("%w: %w", projection.ErrFailed, usercode.ForCaller(s.seen.Reason))
	case t.State != "" || err != nil:
		return t, err
	case failed:
		return t, projection.ErrFailed
	case admin.State(s.seen.Phase) == admin.StateMissingObject:
		t = Tick{State: TickWaiting}
		if s.seen.Reason != nil {
			t.Reason = s.seen.Reason.Error()
		}
		return t, nil
	}
	return Tick{State: TickIdle}, nil
}

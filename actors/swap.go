package actors

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/versions"
	"github.com/millrace-go/millrace/projection"
)

const (
	// nearBehind is how many positions a version may be behind the earlier one when that is held.
	nearBehind = 1000
	// heldMost limits how long the earlier version is held while the version catches up.
	heldMost = 10 * time.Second
	// lookFirst and lookMost bound the delays between two checks of the versions. Waiting swaps poll more slowly the
	// more of them there are on the node: looksMost more of them add the delay once more.
	lookFirst, lookMost = 5 * time.Millisecond, 250 * time.Millisecond
	looksMost           = 8
)

// swapping is an operation of the kind OperationSwap.
type swapping struct {
	*operation
	options engine.SwapOptions
	types   []string
}

// standStill makes the versions of a swap stand still: the earlier one when the version is near, and the version when
// it has all that the earlier one has. It reports whether readers use the version already.
func (s swapping) standStill(ctx, waiting context.Context) (inUse bool, err error) {
	state, err := s.lookUntilNear(ctx, waiting)
	if err != nil {
		return false, err
	}
	if state.Earlier != "" {
		if err := s.hold(ctx, waiting, []string{state.Earlier}); err != nil {
			return false, err
		}
		reached := func(state versions.State) bool { return !state.Missing }
		if _, err := s.catchUp(ctx, waiting, time.Now().Add(min(heldMost, s.options.CatchUp)), reached); err != nil {
			return false, err
		}
	}
	return state.InUse(), s.hold(ctx, waiting, s.op.Holds)
}

// near reports whether the earlier version may be held.
func near(state versions.State) bool { return state.Behind() <= nearBehind || !state.Missing }

// lookUntilNear waits until the version is near. Meanwhile the operation has no place.
func (s swapping) lookUntilNear(ctx, waiting context.Context) (versions.State, error) {
	state, err := s.look(ctx)
	if err != nil || near(state) {
		return state, err
	}
	s.place.leave()
	s.swapsWaiting.Add(1)
	state, err = s.catchUp(ctx, waiting, s.began.Add(s.options.CatchUp-s.op.Age), near)
	s.swapsWaiting.Add(-1)
	if err != nil {
		return state, err
	}
	return state, s.place.take(waiting)
}

// catchUp waits until the version is far enough. It returns the error with which the operation ends if the version
// cannot take the place of the earlier one, or is behind after the deadline.
func (s swapping) catchUp(ctx, waiting context.Context, deadline time.Time,
	enough func(versions.State) bool) (versions.State, error) {
	inTime, cancel := context.WithDeadline(waiting, deadline)
	defer cancel()
	for delays := backoff.New(lookFirst, lookMost); ; {
		state, err := s.look(ctx)
		if err != nil || state.InUse() || enough(state) {
			return state, err
		}
		delay := delays.Next()
		if s.place.release == nil { // nothing stands still meanwhile
			delay *= time.Duration(1 + s.swapsWaiting.Load()/looksMost)
		}
		if !pause(inTime, delay) {
			return state, cmp.Or(waiting.Err(), engine.EndsOperation(state.Reached()))
		}
	}
}

// look returns how far both versions are, or the error with which the operation ends if the version cannot take the
// place of the earlier one.
func (s swapping) look(ctx context.Context) (state versions.State, err error) {
	err = s.step(ctx, func(ctx context.Context) (err error) {
		if err := s.confirmOpen(ctx); err != nil {
			return err
		}
		state, err = s.deps.Plane.Versions(ctx, s.op.ID, s.types)
		if err != nil || state.InUse() {
			return err
		}
		ready := state.Ready(s.options.AllowParked)
		if errors.Is(ready, projection.ErrPaused) {
			ready = cmp.Or(engine.InactiveTenant(ctx, s.deps.Lists, s.op.ID.Tenant), ready)
		}
		return engine.EndsOperation(ready)
	})
	return state, err
}

// confirmOpen returns projection.ErrLeaseLost if the operation has ended or was taken over. Otherwise a swap that was
// cancelled would wait for its version until the limit.
func (s swapping) confirmOpen(ctx context.Context) error {
	o, err := s.deps.Plane.Operation(ctx, s.op.Number)
	if err != nil {
		return err
	}
	if s.op.IsOver(o) {
		return projection.ErrLeaseLost
	}
	return nil
}

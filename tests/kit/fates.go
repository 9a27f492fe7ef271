package kit

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/projection"
)

// Course is the expected result of a policy for a failing event. Shape is a projection with that policy. Parks, Skips
// and Stops report what happens to the event, and Whole that the later events of its stream are parked with it. Calls
// is how often the event is tried alone until then.
type Course struct {
	Shape                      millrace.Projection
	Parks, Whole, Skips, Stops bool
	Calls                      int64
}

// Fails reports whether the event is finally parked or skipped, or stops the projection. Otherwise it succeeds in the
// end.
func (c Course) Fails() bool { return c.Parks || c.Skips || c.Stops }

// Courses returns a Course for each policy.
func Courses() map[string]Course {
	answer := func(a projection.Action) func(context.Context, projection.Failure) projection.Action {
		return func(_ context.Context, f projection.Failure) projection.Action {
			if f.Attempt < 3 {
				return projection.ActionRetry
			}
			return a
		}
	}
	shape := func(on projection.Action, handler func(context.Context,
		projection.Failure) projection.Action) millrace.Projection {
		return millrace.Projection{Retry: Soon(1), OnFailure: on, FailureHandler: handler}
	}
	return map[string]Course{
		"park": {Shape: shape(projection.ActionPark, nil), Parks: true, Calls: 2},
		"park stream": {
			Shape: shape(projection.ActionParkStream, nil), Parks: true, Whole: true, Calls: 2,
		},
		"skip":           {Shape: shape(projection.ActionSkip, nil), Skips: true, Calls: 2},
		"stop":           {Shape: shape(projection.ActionStop, nil), Stops: true, Calls: 2},
		"retry for ever": {Shape: shape(projection.ActionRetry, nil), Calls: 4},
		"FailureHandler, park stream": {
			Shape: shape(projection.ActionStop, answer(projection.ActionParkStream)), Parks: true, Whole: true,
			Calls: 3,
		},
		"FailureHandler, skip": {
			Shape: shape(projection.ActionStop, answer(projection.ActionSkip)), Skips: true, Calls: 3,
		},
	}
}

// Fates is a store with two streams and one poison event. Behind has the positions of the later events of its stream.
type Fates struct {
	*Bundle
	Poison, Last int64
	Behind       []int64
}

// NewFates appends the events to an empty store.
func NewFates(b *Bundle) *Fates {
	f := &Fates{Bundle: b}
	for i := range 10 {
		a := f.Append("a", 1).Positions[0]
		f.Last = f.Append("b", 1).Positions[0]
		if i == 4 {
			f.Poison = a
		} else if i > 4 {
			f.Behind = append(f.Behind, a)
		}
	}
	return f
}

// MustHaveGone waits for a projection, and checks that the poison event ended as c expects. The error of the event must
// contain says.
func (f *Fates) MustHaveGone(rt *millrace.Runtime, name string, c Course, says string) {
	f.T.Helper()
	err := rt.WaitFor(f.Ctx, millrace.ProjectionID{Name: name}, f.Last)
	s := f.Status(rt, name)
	var parked []int64
	for _, l := range f.DeadLettersOf(name) {
		parked = append(parked, l.Position)
		bad := l.Attempts != 0
		if l.Position == f.Poison {
			bad = l.Stream != "a" || l.Version != 5 || l.Type != "counted" || int64(l.Attempts) < c.Calls ||
				l.LastFailedAt.Before(l.FirstFailedAt) || !strings.Contains(l.Error, says)
		}
		if bad || l.BlockedByStream != (l.Position != f.Poison) {
			f.T.Errorf("%s: parked: %+v", name, l)
		}
	}
	var want []int64
	if c.Parks {
		want = append(want, f.Poison)
	}
	if c.Whole {
		want = append(want, f.Behind...)
	}
	skipped := int64(0)
	if c.Skips {
		skipped = 1
	}
	if !slices.Equal(parked, want) || s.Parked != int64(len(want)) || s.Skipped != skipped {
		f.T.Errorf("%s: parked %v, want %v; %+v", name, parked, want, s)
	}
	if c.Stops {
		if !errors.Is(err, projection.ErrFailed) || !strings.Contains(err.Error(), says) ||
			s.State != admin.StateFailed || s.Checkpoint != f.Poison-1 || int64(s.Attempts) < c.Calls {
			f.T.Errorf("%s: waiting for it: %v; %+v", name, err, s)
		}
		if applied := f.Positions(name); len(applied) != int(f.Poison)-1 {
			f.T.Errorf("%s: applied %v", name, applied)
		}
		return
	}
	if c.Skips {
		want = append(want, f.Poison)
	}
	f.Verify(name, want...)
	if err != nil || s.Attempts != 0 || s.FailingPosition != 0 {
		f.T.Errorf("%s: waiting for it: %v; %+v", name, err, s)
	}
}

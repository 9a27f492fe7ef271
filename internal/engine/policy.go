package engine

import (
	"context"
	"math"

	"github.com/millrace-go/millrace/projection"
)

// Policy decides what happens to an event that its handler cannot handle. Its fields are those of millrace.Projection, which
// describes them. After WithDefaults, the zero value retries and then parks.
type Policy struct {
	Retry           projection.RetryPolicy
	OnFailure       projection.Action
	FailureHandler  func(ctx context.Context, f projection.Failure) projection.Action
	MaxFailureShare float64
	MaxParked       int64
	Replay          projection.ReplayPolicy
	AnyOrder        bool
}

// Room returns how many more events may be parked if that many are parked already.
func (p Policy) Room(parked int64) int64 {
	if p.MaxParked < 0 {
		return math.MaxInt64
	}
	return max(0, p.MaxParked-parked)
}

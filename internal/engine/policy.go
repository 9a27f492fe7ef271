package engine

import (
	"context"
	"math"

	"github.com/millrace-go/millrace/projection"
)

// Policy decides what happens to an event that its handler cannot handle. Its fields are those of millrace.Projection,
// which describes them. After WithDefaults, the zero value retries and then parks the event's stream.
type Policy struct {
	Retry           projection.RetryPolicy
	OnFailure       projection.Action
	FailureHandler  func(ctx context.Context, f projection.Failure) projection.Action
	MaxFailureShare float64
	MaxParked       int64
	MaxBlocked      int64
	Replay          projection.ReplayPolicy
	// AnyOrder parks single events where OnFailure parks their streams.
	AnyOrder bool
}

// Room returns how many more events that failed may be parked if that many are parked already.
func (p Policy) Room(failed int64) int64 { return room(p.MaxParked, failed) }

// BlockedRoom returns how many more events may be parked because of their streams if that many are parked already.
func (p Policy) BlockedRoom(blocked int64) int64 { return room(p.MaxBlocked, blocked) }

// Counts reports whether a limit may be reached: events that failed must then be counted apart from those that are
// parked because of their streams. parked are all of them, and so many more may follow: a delivery rejects events, and
// others are of parked streams.
func (p Policy) Counts(parked, more int64) bool {
	return p.Room(parked) < more || p.BlockedRoom(parked) < more
}

func room(most, parked int64) int64 {
	if most < 0 {
		return math.MaxInt64
	}
	return max(0, most-parked)
}

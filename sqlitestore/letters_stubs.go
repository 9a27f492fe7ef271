package sqlitestore

import (
	"context"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

func (s port) Deliver(h engine.Handler, o engine.DeliverOptions) engine.Run { panic("not yet") }

func (s port) ParkedStreams(ctx context.Context, lease engine.Lease, streams []string) (map[string]bool, error) {
	panic("not yet")
}

func (s port) NextCommand(ctx context.Context, lease engine.Lease, discards bool) (engine.ReplayQueue, error) {
	panic("not yet")
}

func (s port) Discard(ctx context.Context, lease engine.Lease, command int64) (int64, error) {
	panic("not yet")
}

func (s port) BeginReplay(ctx context.Context, lease engine.Lease, command, unfinished int64) (*engine.Replay, error) {
	panic("not yet")
}

func (s port) FailReplay(ctx context.Context, lease engine.Lease, failed engine.FailedReplay) error {
	panic("not yet")
}

func (s port) SkipReplay(ctx context.Context, lease engine.Lease, failed engine.FailedReplay) error {
	panic("not yet")
}

func (s port) ScheduleReplay(ctx context.Context, lease engine.Lease, policy projection.ReplayPolicy) (scheduled bool, next time.Duration, err error) {
	panic("not yet")
}

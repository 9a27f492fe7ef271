package sqlitestore

import (
	"context"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

func (s port) Connect(ctx context.Context, node engine.Node) (engine.Session, error) {
	panic("not yet")
}

func (s port) Ensure(ctx context.Context, projections []engine.NewProjection) error { panic("not yet") }

func (s port) Free(ctx context.Context, node engine.Node, trustHeartbeats bool) ([]engine.LeaseRef, error) {
	panic("not yet")
}

func (s port) Counts(ctx context.Context, tenants, names []string) ([]engine.Want, error) {
	panic("not yet")
}

func (s port) Claim(ctx context.Context, node engine.Node, rows []int32, trustHeartbeats bool) ([]engine.Lease, error) {
	panic("not yet")
}

func (s port) AnnounceDrain(ctx context.Context, node engine.Node) error { panic("not yet") }

func (s port) Owned(ctx context.Context, node engine.Node) ([]engine.Lease, error) { panic("not yet") }

func (s port) Leases(ctx context.Context, rows []int32) ([]engine.Lease, error) { panic("not yet") }

func (s port) Release(ctx context.Context, advances []engine.Advance) error { panic("not yet") }

func (s port) Advance(ctx context.Context, advances []engine.Advance) (moved map[int32]bool, err error) {
	panic("not yet")
}

func (s port) Nodes(ctx context.Context) ([]engine.NodeRow, error) { panic("not yet") }

func (s port) Projections(ctx context.Context, filter engine.ProjectionFilter) ([]engine.ProjectionRow, error) {
	panic("not yet")
}

func (s port) Overview(ctx context.Context, patience time.Duration) (engine.Overview, error) {
	panic("not yet")
}

func (s port) OldestSnapshot(ctx context.Context) (engine.Snapshot, error) { panic("not yet") }

func (s port) SetDesiredState(ctx context.Context, id projection.ID, desired engine.DesiredState) error {
	panic("not yet")
}

func (s port) PauseEnded(ctx context.Context, id projection.ID) (free bool, err error) {
	panic("not yet")
}

func (s port) Orders(ctx context.Context, node engine.Node, rows []int32) (map[int32]engine.Orders, error) {
	panic("not yet")
}

package sqlitestore

import (
	"context"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

func (s port) Apply(h engine.Handler, o engine.ApplyOptions) engine.Run { panic("not yet") }

func (s port) Abandoned() int64 { panic("not yet") }

func (s port) Absent(ctx context.Context, tenant string) error { panic("not yet") }

func (s port) Park(ctx context.Context, lease engine.Lease, letter projection.DeadLetter, stream bool) error {
	panic("not yet")
}

func (s port) RecordFailure(ctx context.Context, lease engine.Lease, failure projection.Failure) (first time.Time, err error) {
	panic("not yet")
}

func (s port) BeginAttempt(ctx context.Context, lease engine.Lease, position int64, attempt int) error {
	panic("not yet")
}

func (s port) Skip(ctx context.Context, lease engine.Lease, position int64) error { panic("not yet") }

func (s port) Halt(ctx context.Context, lease engine.Lease, reason string) error { panic("not yet") }

func (s port) SetFailed(ctx context.Context, lease engine.Lease, reason string) error {
	panic("not yet")
}

func (s port) Read(ctx context.Context, tenant string, r engine.ReadRange) (engine.Page, error) {
	panic("not yet")
}

func (s port) Tail(tenant string) engine.Tail { panic("not yet") }

func (s port) Heads(ctx context.Context, tenants []string) (engine.Heads, error) { panic("not yet") }

func (s port) Ping(ctx context.Context) error { panic("not yet") }

func (s port) Probe(ctx context.Context) error { panic("not yet") }

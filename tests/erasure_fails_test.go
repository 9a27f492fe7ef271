package tests_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// An erasure whose time ends while it waits has redacted nothing, and the tenant runs.
func TestErasureWhoseTimeEndsRedactsNothing(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		entered, leave := make(chan struct{}), make(chan struct{})
		first := true
		rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p",
			Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error {
				if first {
					first = false
					close(entered)
					<-leave
				}
				return nil
			})})
		b.MustAppend(b.Store, "ada", event.Any, ofAPerson(2)...)
		<-entered
		begun := &control.Erasure{
			Tenant: projection.DefaultTenant, Erasure: event.Erasure{Stream: "ada", Reason: "request 16"},
		}
		b.Must(b.Plane().BeginErasure(b.Ctx, begun))
		if done, err := b.Plane().EndErasure(b.Ctx, begun); done || err != nil {
			t.Errorf("redacted while a handler runs: %v", err)
		}
		b.Must(b.Plane().AbandonErasure(b.Ctx, begun))
		ctx, cancel := context.WithCancel(b.Ctx)
		defer cancel()
		go func() {
			for state := tenancy.Active; state != tenancy.Paused &&
				ctx.Err() == nil; kit.Pass(ctx, 10*time.Millisecond) {
				state, _ = b.Store.State(ctx)
			}
			cancel() // while the erasure waits
		}()
		_, err := b.Store.EraseStream(ctx, "ada", "request 17")
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		mustBeUntouched(b)
		if all, err := b.Store.Erasures(b.Ctx); err != nil || len(all) != 0 {
			t.Errorf("%+v, %v", all, err)
		}
		close(leave)
		b.Reaches(rt, "p", 2)
	})
}

func mustBeUntouched(b *kit.Bundle) {
	b.T.Helper()
	for _, e := range b.All(b.Store) {
		if e.Redacted() {
			b.T.Errorf("%+v", e)
		}
	}
	if state, err := b.Store.State(b.Ctx); err != nil || state != tenancy.Active {
		b.T.Errorf("the tenant is %s, %v", state, err)
	}
}

// After the death of a process that erased, the tenant stays paused until the next erasure of the tenant, or until a
// person resumes it.
func TestErasureWhoseProcessDiesIsRepeated(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(millrace.Config{}, b.Recorders("p")...)
		b.MustAppend(b.Store, "ada", event.Any, ofAPerson(2)...)
		b.Reaches(rt, "p", 2)
		dies := func() {
			t.Helper()
			b.Must(b.Plane().BeginErasure(b.Ctx, &control.Erasure{Tenant: projection.DefaultTenant,
				Erasure: event.Erasure{Stream: "ada", Reason: "request 16"}}))
			if state, err := b.Store.State(b.Ctx); err != nil || state != tenancy.Paused {
				t.Errorf("the tenant is %s, %v", state, err)
			}
		}
		dies()
		b.Must(rt.ResumeTenant(b.Ctx, projection.DefaultTenant))
		mustBeUntouched(b)
		dies()
		erased := mustErase(b, b.Store, "ada", 2)
		all, err := b.Store.Erasures(b.Ctx)
		if err != nil || len(all) != 3 || !all[0].EndedAt.IsZero() || all[1].Events != 0 || all[2].ID != erased.ID {
			t.Errorf("%+v, %v", all, err)
		}
		b.Append("other", 1)
		b.Reaches(rt, "p", 3)
	})
}

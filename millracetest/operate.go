package millracetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/projection"
)

// Rebuild rebuilds a projection of the Kit's tenant as Admin.Rebuild does: it runs the hook Projection.Reset, and then
// the projection handles all events again. Rows that the hook leaves in place show as rows that were written twice.
func (k *Kit) Rebuild(p millrace.Projection) {
	k.t.Helper()
	k.operate(p, func(ctx context.Context, rt *millrace.Runtime) error {
		return rt.Rebuild(ctx, k.idOf(p), admin.ResetOptions{Redeliver: true})
	})
}

// Swap runs a later version of a projection and replaces the earlier version by it in the Kit's tenant, as Admin.Swap
// does with the hook Projection.Swap. The earlier version must have run before, for instance by When.
func (k *Kit) Swap(p millrace.Projection) {
	k.t.Helper()
	k.When(p)
	k.operate(p, func(ctx context.Context, rt *millrace.Runtime) error {
		return rt.Swap(ctx, k.idOf(p), admin.SwapOptions{})
	})
}

// DropVersion removes a later version of a projection from the Kit's tenant, as Admin.DropVersion does with the hook
// Projection.Drop. The version must have run before.
func (k *Kit) DropVersion(p millrace.Projection) {
	k.t.Helper()
	k.during(p, func(ctx context.Context, rt *millrace.Runtime) error { return rt.DropVersion(ctx, k.idOf(p)) })
	delete(k.parked, k.idOf(p))
}

// Replay handles the parked events of a projection of the Kit's tenant again, with its present handler. Events that
// fail again stay parked. The test fails if an event is refused because the projection has handled later events of its
// stream.
func (k *Kit) Replay(p millrace.Projection) {
	k.t.Helper()
	k.operate(p, func(ctx context.Context, _ *millrace.Runtime) error {
		result, err := k.store.DeadLetters(k.idOf(p)).Replay(ctx, projection.DeadLetterFilter{All: true}, replayMost)
		if err == nil && result.Refused != nil {
			err = fmt.Errorf("%w: streams %q", projection.ErrOutOfOrder, result.Refused.Streams)
		}
		return err
	})
}

// replayMost is more than the events that a projection may park.
const replayMost = 1 << 20

// operate calls do while a runtime runs the projection. Then it runs the projection until it is idle.
func (k *Kit) operate(p millrace.Projection, do func(ctx context.Context, rt *millrace.Runtime) error) {
	k.t.Helper()
	k.during(p, do)
	k.When(p)
}

// during calls do while a runtime runs the projection.
func (k *Kit) during(p millrace.Projection, do func(ctx context.Context, rt *millrace.Runtime) error) {
	k.t.Helper()
	rt := k.runtime([]millrace.Projection{p})
	ctx, cancel := k.context()
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel() // do does not wait for a runtime that could not start
		ended <- rt.Run(ctx)
	}()
	err := do(ctx, rt)
	cancel()
	k.must(errors.Join(<-ended, err))
}

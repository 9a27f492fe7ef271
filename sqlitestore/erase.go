package sqlitestore

import (
	"context"
	"database/sql/driver"
	"fmt"
	"time"

	"go.uber.org/zap"
	"modernc.org/sqlite"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/lifecycle"
)

// EraseStream redacts all events of a stream, such as those of a person: their positions, versions, types and times
// stay, and their bodies, headers, causations and correlations are removed permanently. It also removes the stream's
// aliases and the idempotency keys of its appends, and the errors of its events in dead letters and in the status.
// Typed handlers skip redacted events from then on: see event.IncludeRedacted. Other handlers get them with
// Envelope.Redacted.
//
// It pauses the tenant, waits until no projection of it runs on any node, redacts the events in one transaction, and
// resumes the tenant. So no node has them in memory when it returns, and no handler gets them later. The Erasure names
// the projections that had passed them: rebuild these, or delete from their read models. A tenant that was paused
// before stays paused. A pause that is requested meanwhile ends as well. An archived tenant stays archived. Handlers
// and hooks cannot call it in their own tenant.
//
// If EraseStream fails, nothing is redacted, and the tenant is resumed. If the connection is lost at the commit,
// Erasures shows whether the events are redacted. If its process dies, the tenant may stay paused: the next erasure of
// the tenant resumes it, also from a later pause, and so does Admin.ResumeTenant. It can be repeated. The reason, from
// 1 to 1,000 bytes, is kept with the erasure: see Erasures. Later appends to the stream are not redacted.
//
// It overwrites what was removed in the file, and then empties the write-ahead log. While another connection reads an
// older state of the file, it waits. If ctx ends meanwhile, the events are redacted, but still in the log, and the
// error says so: repeat EraseStream then. It returns tenancy.ErrUnknown, tenancy.ErrDropping, ErrMoved, and
// event.ErrNotFound if the stream has neither events nor aliases. docs/erasure.md says what is left of the events.
func (t *Tenant) EraseStream(ctx context.Context, stream, reason string) (event.Erasure, error) {
	return t.erase(ctx, event.Erasure{Stream: stream, Reason: reason})
}

// RedactEvents is EraseStream for the events at some positions, at most 10,000. Aliases stay. It returns
// event.ErrNotFound, and redacts nothing, if there is no event at one of them.
func (t *Tenant) RedactEvents(ctx context.Context, positions []int64, reason string) (event.Erasure, error) {
	return t.erase(ctx, event.Erasure{Positions: append([]int64{}, positions...), Reason: reason})
}

// Erasures returns the erasures of the tenant, the oldest first. They stay until the tenant is dropped.
func (t *Tenant) Erasures(ctx context.Context) ([]event.Erasure, error) {
	return t.store.plane().Erasures(ctx, t.name)
}

// EraseStream is Tenant.EraseStream for projection.DefaultTenant.
func (s *Store) EraseStream(ctx context.Context, stream, reason string) (event.Erasure, error) {
	return s.tenant.EraseStream(ctx, stream, reason)
}

// RedactEvents is Tenant.RedactEvents for projection.DefaultTenant.
func (s *Store) RedactEvents(ctx context.Context, positions []int64, reason string) (event.Erasure, error) {
	return s.tenant.RedactEvents(ctx, positions, reason)
}

// Erasures is Tenant.Erasures for projection.DefaultTenant.
func (s *Store) Erasures(ctx context.Context) ([]event.Erasure, error) {
	return s.tenant.Erasures(ctx)
}

func (t *Tenant) erase(ctx context.Context, selected event.Erasure) (event.Erasure, error) {
	e := control.Erasure{Erasure: selected, Tenant: t.name}
	err := lifecycle.Erase(ctx, t.store.plane(), &e)
	t.store.followers.Drop(t.name)
	if err != nil {
		return event.Erasure{}, e.Failed(err)
	}
	t.store.log.Info("events redacted", zap.String("tenant", t.name), zap.Int64("erasure", e.ID),
		zap.Int64("events", e.Events))
	// Nothing announces the end of the reads of an older state, which keep the log.
	err = backoff.Poll(ctx, 2*time.Millisecond, 100*time.Millisecond,
		func() (bool, error) { return t.db.writer.emptyLog(ctx) })
	if err != nil {
		return e.Erasure, e.Failed(fmt.Errorf("the events are redacted, but still in the write-ahead log: %w", err))
	}
	return e.Erasure, nil
}

func init() {
	sqlite.MustRegisterDeterministicScalarFunction("millrace_checksum", 9,
		func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			var numbers [3]int64
			var texts [6]string
			for i := range numbers {
				numbers[i], _ = args[i].(int64)
			}
			for i := range texts {
				texts[i], _ = args[len(numbers)+i].(string)
			}
			_, sum := checksum(nil, numbers[0], numbers[1], numbers[2], texts[0], texts[1], texts[2], texts[3],
				texts[4],
				texts[5])
			return sum, nil
		})
}

package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/delivery"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// moveTime bounds an acknowledgement. It is longer than the timeout of most handlers, since an acknowledgement waits
// until the batch or transaction that has the writer ends. If it were shorter, one slow batch would end the deliveries
// of all other projections, and their events would be delivered again.
const moveTime = 2 * time.Minute

func (s port) Deliver(h engine.Handler, o engine.DeliverOptions) engine.Run {
	return delivery.Port{Store: deliveries{s.Store}, MoveTime: moveTime, Log: s.log, Abandoned: &s.abandoned}.Run(h, o)
}

// deliveries implements delivery.Store.
type deliveries struct{ *Store }

func (s deliveries) Begin(ctx context.Context, lease engine.Lease) (held bool, token string, err error) {
	_, err = runOne(ctx, s.readers, "begin_delivery", []any{lease.Row, lease.Owner, lease.Epoch, lease.Checkpoint}, &held, &token)
	return held, token, err
}

func (s deliveries) Move(ctx context.Context, lease engine.Lease, step engine.Batch, rejected *projection.DeadLetter) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		// The fence comes first: nothing changes until the commit.
		if err := advance(ctx, tx, lease, step.To); err != nil {
			return err
		}
		if rejected != nil {
			e := event.Envelope{Position: rejected.Position, Stream: rejected.Stream, Version: rejected.Version, Type: rejected.Type}
			if err := parkEvents(ctx, tx, lease, []event.Envelope{e}, *rejected, false); err != nil {
				return fmt.Errorf("park a rejected event: %w", err)
			}
		}
		return s.settleDeadLetters(ctx, tx, lease, step)
	})
}

func (deliveries) Fault(err error) *engine.Fault { return storeFault(err) }

func (deliveries) HandlerClass(err error) engine.Class { return returnedClass(err) }

package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/delivery"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/store"
)

// moveTime bounds an acknowledgement. It is longer than the timeout of most handlers, since an acknowledgement waits
// until the batch or transaction that has the writer ends. If it were shorter, one slow batch would end the deliveries
// of all other projections, and their events would be delivered again.
const moveTime = 2 * time.Minute

func (s port) Deliver(h handler.Handler, o engine.DeliverOptions) engine.ApplyFunc {
	return delivery.Port{Store: deliveries{s.database}, MoveTime: moveTime, Log: s.log,
		Abandoned: &s.store.abandoned}.Run(h, o)
}

// deliveries implements delivery.Store.
type deliveries struct{ *database }

func (s deliveries) Begin(ctx context.Context, lease engine.Lease) (held bool, token string, err error) {
	_, err = runOne(ctx, s.readers, "begin_delivery", []any{lease.Row, lease.Owner, lease.Epoch, lease.Checkpoint},
		&held, &token)
	return held, token, err
}

func (s deliveries) Move(ctx context.Context, lease engine.Lease, step engine.Batch, rejected *engine.Rejected) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		// The fence comes first: nothing changes until the commit.
		if err := advance(ctx, tx, lease, step.To); err != nil {
			return err
		}
		return s.on(ctx, tx).run(func(tx store.Tx) error {
			if rejected != nil {
				control.ParkFailed(tx, lease.Row, rejected.DeadLetter, rejected.ParkStream)
			}
			control.Settle(tx, lease, step)
			return nil
		})
	})
}

func (deliveries) Fault(err error) *faults.Fault { return storeFault(err) }

func (deliveries) HandlerClass(err error) faults.Class { return returnedClass(err) }

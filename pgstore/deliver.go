package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/delivery"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/store"
)

func (s port) Deliver(h handler.Handler, o engine.DeliverOptions) engine.ApplyFunc {
	return delivery.Port{Store: deliveries{s.store}, MoveTime: finishTime, Log: s.log,
		Abandoned: &s.store.handling.abandoned}.Run(h, o)
}

// deliveries implements delivery.Store.
type deliveries struct{ *Store }

func (s deliveries) Begin(ctx context.Context, l engine.Lease) (held bool, token string, err error) {
	err = s.pool.QueryRow(ctx, s.control.sql("begin_delivery"), l.Row, l.Owner, l.Epoch, l.Checkpoint,
		int64(l.Incarnation)).Scan(nil, &held, &token)
	return held, token, err
}

func (s deliveries) Move(ctx context.Context, lease engine.Lease, step engine.Batch, rejected *engine.Rejected) error {
	if err := s.notWithin(ctx); err != nil {
		return err
	}
	b := newBatchTx(s.Store, lease, step.To, batchOptions{timeout: finishTime, durable: true})
	if rejected != nil || len(step.BlockedByStream) > 0 || step.Replay != nil { // it costs a round trip
		b.afterHandler = func(ctx context.Context, conn *pgx.Conn) error {
			return s.on(ctx, conn).run(func(tx store.Tx) error {
				if rejected != nil {
					control.ParkFailed(tx, lease.Row, rejected.DeadLetter, rejected.ParkStream)
				}
				control.Settle(tx, lease, step)
				return nil
			})
		}
	}
	return b.run(ctx, func(context.Context, pgx.Tx) error { return nil })
}

func (deliveries) Fault(err error) *faults.Fault { return storeFault(err) }

func (deliveries) HandlerClass(err error) faults.Class { return returnedClass(err) }

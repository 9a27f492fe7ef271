package pgstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
)

// handling has the batches of this process whose handlers run, by the rows of their leases. After a deadlock, those
// that wait for each other are sent back: their transactions began before they were kept apart, and would meet one
// deadlock after another.
type handling struct {
	mu      sync.Mutex
	batches map[int32]*batchTx
	// abandoned counts the handlers that did not return.
	abandoned atomic.Int64
}

// back says how a batch was sent back. session is that of its transaction. deadlock has the other projections in the
// deadlock behind which it waited, nil if it was not sent back. onItsWay reports that the request to cancel its
// statement may still reach the session.
type back struct {
	mu       sync.Mutex // held while it is sent back
	session  *pgconn.PgConn
	deadlock []faults.Rival
	onItsWay bool
}

// during calls the handler of a batch. It returns after a request to cancel a statement, if one is on its way: that
// must not cancel a later statement of the session.
func (h *handling) during(b *batchTx, handle func() error) error {
	if b.to == 0 { // it is no batch
		return handle()
	}
	row := b.fence.rows[0]
	b.back.session = b.leased.conn.PgConn()
	h.mu.Lock()
	if h.batches == nil {
		h.batches = make(map[int32]*batchTx)
	}
	h.batches[row] = b
	h.mu.Unlock()
	err := handle()
	h.mu.Lock()
	if h.batches[row] == b {
		delete(h.batches, row)
	}
	h.mu.Unlock()
	b.back.mu.Lock()
	defer b.back.mu.Unlock()
	return err
}

// sendBack cancels the statement that the handler of a projection waits for. rivals are all projections in the
// deadlock.
func (h *handling) sendBack(ctx context.Context, row int32, rivals []faults.Rival) error {
	h.mu.Lock()
	b := h.batches[row]
	if b == nil || !b.back.mu.TryLock() {
		h.mu.Unlock()
		return nil
	}
	defer b.back.mu.Unlock()
	h.mu.Unlock()
	b.back.deadlock = append(b.back.deadlock, slices.DeleteFunc(slices.Clone(rivals),
		func(r faults.Rival) bool { return r.Row == row })...)
	err := cmp.Or(b.back.session.CancelRequest(ctx), ctx.Err()) // it returns nil if the answer does not come in time
	b.back.onItsWay = b.back.onItsWay || err != nil
	return err
}

// sendBack sends back those of the projections in a deadlock that wait, except one of them if all do.
func (b *batchTx) sendBack(ctx context.Context, others []met) {
	if b.to == 0 || b.store.server.pooling.Lends { // it is no batch, or a request may reach another session
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	all := []faults.Rival{{Row: b.fence.rows[0], ID: b.id}}
	for _, m := range others {
		all = append(all, m.Rival)
	}
	spared := slices.ContainsFunc(others, func(m met) bool { return !m.waits })
	for _, m := range others {
		switch {
		case !m.waits:
		case !spared:
			spared = true
		default:
			if err := b.store.handling.sendBack(ctx, m.Row, all); err != nil {
				b.store.log.Debug("sending back a batch in a deadlock failed", zap.Stringer("projection", m.ID),
					zap.Error(err))
			}
		}
	}
}

// sentBack returns the fault of a batch that was sent back. Otherwise it returns err. met is the error that its
// transaction met.
func (b *batchTx) sentBack(met, err error) error {
	if b.back.onItsWay || b.back.deadlock != nil && err != nil && pgerr.Is(met, pgerr.QueryCanceled) {
		return &faults.Fault{
			Class: faults.Infrastructure, Conflict: true, Rivals: b.back.deadlock, Err: cmp.Or(err, errSentBack),
		}
	}
	return err
}

// errSentBack is the error of a batch whose handler succeeded, while a request to cancel it may still be on its way.
var errSentBack = errors.New("the batch waited behind a deadlock, and was sent back")

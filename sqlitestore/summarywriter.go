package sqlitestore

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// summaryTimeout limits the time in which a summary is written. Meanwhile a batch may have the writer.
const summaryTimeout = 10 * time.Second

// summaryWriter writes summaries, one at a time. slot has an element while one is being written.
type summaryWriter struct {
	slot    chan struct{}
	work    sync.WaitGroup
	cancel  atomic.Pointer[context.CancelFunc]
	written atomic.Pointer[string]
}

// write writes a summary, unless it was written last or another one is being written.
func (w *summaryWriter) write(db *database, node, encoded string) {
	if last := w.written.Load(); last != nil && *last == encoded {
		return
	}
	select {
	case w.slot <- struct{}{}:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), summaryTimeout)
	w.cancel.Store(&cancel)
	w.work.Go(func() {
		defer func() { <-w.slot }()
		defer cancel()
		err := db.transact(ctx, func(tx *sql.Tx) error { return execute(ctx, tx, "set_summary", node, encoded) })
		if err != nil {
			db.log.Debug("writing the summary of the node failed", zap.Error(err))
			return
		}
		w.written.Store(&encoded)
	})
}

// stop cancels the write in progress.
func (w *summaryWriter) stop() {
	if cancel := w.cancel.Load(); cancel != nil {
		(*cancel)()
	}
	w.work.Wait()
}

package sqlitestore

import (
	"context"
	"os"
)

// logLimit is by how much the write-ahead log grows until the writer empties it: 64 MiB. SQLite itself begins the log
// anew from 16 MiB on (see checkpointPages), but only at a moment when no connection reads from it. Reads that overlap
// leave no such moment. With a lower limit, long reads would hold up the writer more often.
const logLimit = 64 << 20

// limitLog empties the log if it has grown by the limit since the last attempt. SQLite holds up writers until the reads
// in progress have ended. If one of them takes long, the log stays until the next attempt. The transaction has ended,
// so an error here is none of its commit.
func (t *transaction) limitLog() {
	w := t.writer
	size := w.logSize()
	w.triedLog = min(w.triedLog, size) // SQLite may have cut the log
	// A file that has another log by now would be damaged.
	if size-w.triedLog <= w.logLimit || w.at.check() != nil || w.at.checkLog(t.log) != nil {
		return
	}
	_ = t.onConn(func(c *conn) error {
		_, err := c.driverConn.ExecContext(context.Background(), queries.Text("limit_log"), nil)
		if err != nil {
			c.loan.spoiled = true // its busy timeout may still be that of the attempt
		}
		return err
	})
	w.triedLog = w.logSize()
}

// logSize returns the size of the write-ahead log, 0 if there is none.
func (w *writer) logSize() int64 {
	log, err := os.Stat(w.at.path + logSuffixes[0])
	if err != nil {
		return 0
	}
	return log.Size()
}

package control

import (
	"context"
	"time"

	"github.com/millrace-go/millrace/internal/store"
)

// Snapshot is the state of an aggregate after an event: see streams.Snapshot.
type Snapshot struct {
	Stream            string
	Version, Position int64
	Time              time.Time
	Fingerprint       string
	State             string
	Generation        int64
}

var snapshotsTable = newTable{"snapshots", "create_snapshots", "complete_snapshots"}

// MakeSnapshots creates the table of snapshots unless it exists.
func (p Plane) MakeSnapshots(ctx context.Context) error { return p.makeTable(ctx, snapshotsTable) }

// SaveSnapshot replaces the snapshot of a stream, unless an erasure has ended its generation.
func SaveSnapshot(tx store.Tx, tenant string, s Snapshot) {
	tx.Exec("save_snapshot", tenant, s.Stream, s.Version, s.Position, s.Time, s.Fingerprint, s.State, s.Generation)
}

// LockStreams locks streams of a tenant, in this order. Those without events have no lock.
func LockStreams(tx store.Tx, tenant string, streams []string) error {
	for _, stream := range streams {
		var version int64
		if _, err := tx.One("lock_stream", []any{tenant, stream}, &version); err != nil {
			return err
		}
	}
	return nil
}

package control

import (
	"context"
	"time"

	"github.com/millrace-go/millrace/internal/store"
)

// Snapshot is the state of an aggregate after an event.
type Snapshot struct {
	Stream string
	// Version, Position and Time identify the event.
	Version, Position int64
	Time              time.Time
	// Fingerprint identifies the code that made State.
	Fingerprint string
	State       []byte
	// Generation is that in which the state was loaded. If it has ended, the snapshot is not saved.
	Generation int64
	// Every is by how many events a snapshot must be later than one with another fingerprint to replace it.
	Every int64
}

var snapshotsTable = newTable{name: "snapshots", create: "create_snapshots"}

// MakeSnapshots creates the table of snapshots unless it exists.
func (p Reads) MakeSnapshots(ctx context.Context) error { return p.makeTable(ctx, snapshotsTable) }

// HasSnapshots reports whether the table of snapshots exists.
func HasSnapshots(v store.View) (bool, error) { return snapshotsTable.wasMade(v) }

// SaveSnapshot replaces the snapshot of a stream, unless an erasure has ended its generation, or another release has
// just saved one.
func SaveSnapshot(tx store.Tx, tenant string, s Snapshot) {
	tx.Exec("save_snapshot", tenant, s.Stream, s.Version, s.Position, s.Time, s.Fingerprint, string(s.State),
		s.Generation, s.Every)
}

// LockStreams locks streams of a tenant, in this order. Those without events have no lock.
func LockStreams(tx store.Tx, tenant string, streams []string) {
	for _, stream := range streams {
		tx.Exec("lock_stream", tenant, stream)
	}
}

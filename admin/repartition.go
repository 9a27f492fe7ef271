package admin

import (
	"context"
	"fmt"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/projection"
)

// Repartition changes the number of partitions of a projection of one tenant, from 1 to 1024, while it runs. It is one
// transaction: a crash leaves the old partitions or the new ones. Every event is handled once, and the events of each
// stream in order. Checkpoints, dead letters, parked streams, replays, failures and pauses go to the partitions of
// their streams. Delivery tokens stay the same. Batches in progress are rolled back and done again. Deliveries in
// progress are cancelled, and their unacknowledged events are delivered again. To avoid that, pause the projection
// first, and resume it afterwards.
//
// If the Admin is that of a millrace.Runtime that knows the projection, the tenant may be new: no node needs to have
// run the projection before.
//
// Repartition waits for commits in progress until ctx ends, but not for handlers. After a connection error, the change
// may have been made. Then call Repartition again: it changes nothing if the projection already has n partitions. See
// docs/partitions.md.
func (a *Admin) Repartition(ctx context.Context, id projection.ID, n int) error {
	switch {
	case id.Partition != 0:
		return fmt.Errorf("repartition %s: ProjectionID.Partition must not be set: %d", engine.FullID(id), id.Partition)
	case n < 1 || n > partition.Most:
		return fmt.Errorf("repartition %s: the number of partitions must be from 1 to %d: %d", engine.FullID(id),
			partition.Most, n)
	}
	return a.existing(ctx, id, func() error { return a.plane.Repartition(ctx, id, n) })
}

package control

import (
	"cmp"
	"context"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// SetDesiredState sets the desired state of a projection and notifies its owner. WantRun clears the failure of the
// projection. If the projection was halted at an event, the attempts at that event are counted anew. The structural
// lock keeps the partitions, to which a change of their number would give the previous state.
func (p Names) SetDesiredState(ctx context.Context, id projection.ID, desired engine.DesiredState) error {
	id = engine.FullID(id)
	err := p.db.Tx(ctx, func(tx store.Tx) error {
		tx.Lock(id.Tenant)
		rows, err := column[int32](tx, "set_desired_state", id.Tenant, id.Name, string(desired))
		switch {
		case err != nil:
			return err
		case len(rows) == 0:
			return cmp.Or(Unknown(tx, id), projection.ErrUnknownProjection)
		}
		notifyRows(tx, rows)
		return nil
	})
	return p.wrap(err, "set the desired state of %s", id)
}

package chaos_test

import (
	"context"
	"errors"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tenancy"
)

// elsewhere is the control schema of a store beside that of the nodes. No node runs in it.
const elsewhere = "elsewhere"

// moveGuest moves the guest to another store and back.
func (s *strike) moveGuest() error {
	defer s.close(guest, tenancy.ErrArchived, tenancy.ErrDropping, tenancy.ErrUnknown)()
	var other *pgstore.Store
	err := s.retried(func(ctx context.Context) (err error) {
		other, err = pgstore.OpenPool(ctx, s.store.Pool(), pgstore.Options{Schema: elsewhere})
		return err
	})
	if err != nil {
		return err
	}
	defer other.Close()
	err = errors.Join(s.retried(other.Migrate), s.removeFrom(other))
	if err != nil {
		return err
	}
	if err := s.moveBetween(s.store, other); err != nil {
		return err
	}
	if err := s.dropGuest(); err != nil {
		return err
	}
	return errors.Join(s.moveBetween(other, s.store), s.removeFrom(other))
}

// moveBetween moves the guest with its projections. The move is repeated during an outage. The stores know whether the
// guest was active.
func (s *strike) moveBetween(from, to *pgstore.Store) error {
	opts := admin.MoveOptions{Projections: make(map[string]admin.MoveAction)}
	for name := range projectionTypes {
		opts.Projections[name] = admin.MoveKeep
	}
	return s.retried(func(ctx context.Context) error {
		_, err := admin.MoveTenant(ctx, from, to, guest, opts)
		return err
	})
}

// removeFrom drops the guest of the other store, if it has one.
func (s *strike) removeFrom(other *pgstore.Store) error {
	return s.retried(func(ctx context.Context) error {
		err := other.DropTenant(ctx, guest, tenancy.DropOptions{Confirm: guest})
		if errors.Is(err, tenancy.ErrUnknown) {
			return nil
		}
		return err
	})
}

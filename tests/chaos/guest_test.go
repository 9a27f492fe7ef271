package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

const (
	// guest is the tenant that comes and goes. All else of the package leaves it alone.
	guest = "guest"
	// guestWriters is how many writers append to it.
	guestWriters = 3
)

// receiveGuest lets the guest live twice under its name, each time for half of the strike.
func (s *strike) receiveGuest() error {
	return s.unlessLost(func() error {
		if err := s.removeGuest(); err != nil { // a server may have lost the end of an earlier one
			return err
		}
		for n := range 2 {
			if err := s.guestLife(n == 0); err != nil {
				return fmt.Errorf("life %d: %w", n+1, err)
			}
		}
		s.wait(200 * time.Millisecond)
		applied, err := value[int64](s.cluster, "select count(*) from public.applied where tenant = $1", guest)
		if err == nil && applied > 0 {
			err = fmt.Errorf("%d events were applied after the drop", applied)
		}
		return err
	})
}

// guestLife creates the guest, splits one of its projections, archives it and brings it back, restores it from a
// backup or moves it to another store and back, compares what was applied, and drops it. Writers append all the time,
// also before and after.
func (s *strike) guestLife(restored bool) error {
	w := startWriters(s.ctx, s.store, s.rnd.Uint64(), guestWriters, 1, fmt.Sprintf("g%x-", s.rnd.Uint32()), guest)
	defer w.stop()
	pass := func() { s.wait(s.lasts/8 + time.Duration(s.rnd.Int64N(int64(s.lasts/8)))) }
	absent := s.close(guest, tenancy.ErrUnknown)
	if err := s.retried(func(ctx context.Context) error {
		_, err := s.store.CreateTenant(ctx, guest)
		return err
	}); err != nil {
		return err
	}
	absent()
	pass()
	if err := s.splitGuest(); err != nil {
		return err
	}
	reopened := s.close(guest, tenancy.ErrArchived)
	if err := errors.Join(s.archived(guest, pass), s.unarchive(guest)); err != nil {
		return err
	}
	reopened()
	pass()
	var err error
	if restored {
		err = s.restoreGuest(w, pass)
	} else {
		err = s.moveGuest()
	}
	if err != nil {
		return fmt.Errorf("restored %t: %w", restored, err)
	}
	pass()
	if err := s.compareGuest(w); err != nil {
		return err
	}
	pass()
	gone := s.close(guest, tenancy.ErrDropping, tenancy.ErrUnknown)
	defer gone()
	if err := s.dropGuest(); err != nil {
		return err
	}
	if err := s.appendRefused(guest, tenancy.ErrUnknown); err != nil {
		return err
	}
	w.stop()
	return errors.Join(asError(s.unexplained(w)), s.nothingLeft())
}

// splitGuest splits a projection of the guest, once the nodes have begun to run it.
func (s *strike) splitGuest() error {
	rt, err := millrace.New(millrace.Config{Store: s.store})
	if err != nil {
		return err
	}
	id := s.anyProjection()
	id.Tenant = guest
	if err := until(s.ctx, 20*time.Second, "the guest has its projections", func() bool {
		all, err := s.leasesOf(guest)
		return err == nil && complete(all, 1)
	}); err != nil {
		return err
	}
	return s.splitInto(rt, id, 2+s.rnd.IntN(mostPartitions-1))
}

// pauseGuest pauses the guest's writers. If a server lost that the guest was brought back, they retry for ever, so they
// are ended then.
func pauseGuest(w *writers) (resume func(), err error) {
	giveUp := time.AfterFunc(30*time.Second, w.end)
	resume = w.pause()
	if !giveUp.Stop() {
		err = errors.New("the guest's writers could not finish their appends")
	}
	return resume, err
}

// compareGuest waits until the guest's projections have applied everything, while its writers pause, and compares that
// with what was appended.
func (s *strike) compareGuest(w *writers) error {
	resume, err := pauseGuest(w)
	defer resume()
	if err != nil {
		return err
	}
	if lagging, err := s.caughtUpOf(30*time.Second, guest); err != nil {
		return fmt.Errorf("%w: %+v", err, lagging)
	}
	var left []finding
	if err := until(s.ctx, 30*time.Second, "all dead letters of the guest are replayed", func() bool {
		err := s.updateDependency(s.ctx, "available = head", guest)
		if err == nil {
			left, err = findDeadLetters(s.ctx, s.admin, unfinishedSQL, guest)
		}
		return err == nil && len(left) == 0
	}); err != nil {
		return fmt.Errorf("%w: %v", err, left)
	}
	var wrong []finding
	if err := s.retried(func(ctx context.Context) (err error) {
		wrong, err = findDeadLetters(ctx, s.admin, contradictionsSQL, guest)
		return err
	}); err != nil {
		return err
	}
	all, err := s.historiesOf(guest)
	if err != nil {
		return err
	}
	for _, h := range all {
		wrong = append(wrong, check(h)...)
		if len(h.events) == 0 {
			wrong = append(wrong, finding{kind: kindAppend, of: h.of, detail: "the guest has no events"})
		}
	}
	missing, _ := s.missing(w, all)
	return asError(append(wrong, missing...))
}

// asError returns findings as an error; nil if there are none.
func asError(findings []finding) (err error) {
	for _, f := range findings[:min(len(findings), mostFindings)] {
		err = errors.Join(err, errors.New(f.String()))
	}
	return err
}

// dropGuest drops the guest, and repeats that during an outage.
func (s *strike) dropGuest() error {
	repeated := false
	err := s.retried(func(ctx context.Context) error {
		err := s.store.DropTenant(ctx, guest, tenancy.DropOptions{Confirm: guest})
		if repeated && errors.Is(err, tenancy.ErrUnknown) {
			return nil // the answer to an earlier call was lost
		}
		repeated = true
		return err
	})
	return err
}

// removeGuest drops the guest if it exists, and forgets what was applied.
func (s *strike) removeGuest() error {
	if err := s.dropGuest(); err != nil && !errors.Is(err, tenancy.ErrUnknown) {
		return err
	}
	return s.nothingLeft()
}

// leftSQL finds what is left of a dropped tenant. No row of another tenant has a projection that does not exist.
const leftSQL = `
select 'left in tenants', id, schema_name from millrace.tenants where tenant = $1
union all select 'left in projections', id, name from millrace.projections where tenant = $1
union all select 'left in leases', id, '' from millrace.leases where id not in (select id from millrace.projections)
union all select 'left in dead_letters', position, stream_id from millrace.dead_letters where projection_id not in (select id from millrace.projections)
union all select 'left in parked_streams', projection_id, stream_id from millrace.parked_streams where projection_id not in (select id from millrace.projections)
union all select 'left in commands', id, kind from millrace.commands where projection_id not in (select id from millrace.projections)
union all select 'schema is left', 0, nspname from pg_namespace where nspname = 'millrace_' || $1`

// leftovers finds what is left of the dropped guest.
func (c *cluster) leftovers(ctx context.Context, q querier) ([]finding, error) {
	return find(ctx, q, leftSQL, projection.ID{Tenant: guest}, guest)
}

// nothingLeft verifies that nothing of the dropped guest is left, and deletes what it has applied, so that whatever is
// applied later is found.
func (s *strike) nothingLeft() error {
	var left []finding
	err := s.retried(func(ctx context.Context) (err error) {
		left, err = s.leftovers(ctx, s.admin)
		return err
	})
	return errors.Join(err, asError(left), s.exec("delete from public.applied where tenant = $1", guest),
		s.exec("update public.dependency set available = 0 where tenant = $1", guest))
}

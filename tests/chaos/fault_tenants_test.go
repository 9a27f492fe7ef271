package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tenancy"
)

var tenantFaults = []fault{
	{
		name: "a tenant comes and goes, and comes again",
		expects: "every acknowledged event is applied once and in order, also after the tenant went back to a backup, or to another store " +
			"and back, appends that meet the end are refused by name, and nothing of the tenant is left, nor met by the next one of its name",
		reach: reachData, weight: 3, least: time.Second, most: 4 * time.Second, alone: 2 * time.Second,
		strike: (*strike).receiveGuest,
	},
	{
		name:    "a tenant is archived and brought back",
		expects: "nothing of it runs or is appended meanwhile, appends are refused by name, and everything continues afterwards",
		reach:   reachData, weight: 3, least: time.Second, most: 4 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error { return s.repeat(100, 300, s.archive) },
	},
	{
		name:    "a tenant is paused and resumed",
		expects: "nothing of it runs meanwhile, appends succeed, and everything continues afterwards",
		reach:   reachData, weight: 3, least: time.Second, most: 4 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error { return s.repeat(100, 300, s.pauseTenant) },
	},
}

// unlessLost calls do until it succeeds, or fails although no server has lost commits meanwhile. After a loss
// everything may be as it was at an earlier time.
func (s *strike) unlessLost(do func() error) error {
	for {
		begun := time.Now()
		err := do()
		if err == nil || s.ctx.Err() != nil || !s.mayBeLost(begun, time.Now()) {
			return err
		}
	}
}

// archive archives a tenant, and brings it back.
func (s *strike) archive() error {
	name := tenants[s.rnd.IntN(len(tenants))]
	closed := time.Duration(s.rnd.IntN(500)) * time.Millisecond
	s.tenantStates.RLock()
	defer s.tenantStates.RUnlock()
	defer s.close(name, tenancy.ErrArchived)()
	err := s.unlessLost(func() error { return s.archived(name, func() { s.wait(closed) }) })
	return errors.Join(err, s.unarchive(name))
}

// archived archives a tenant, and checks that it has no new events and that nothing of it runs until during returns.
func (s *strike) archived(name string, during func()) error {
	if err := s.retried(func(ctx context.Context) error { return s.store.ArchiveTenant(ctx, name) }); err != nil {
		return err
	}
	before, err := s.extent(name)
	if err != nil {
		return err
	}
	if err := s.appendRefused(name, tenancy.ErrArchived); err != nil {
		return err
	}
	during()
	if after, err := s.extent(name); err != nil || after != before {
		return fmt.Errorf("the archived tenant %s had %+v, and then %+v (%v)", name, before, after, err)
	}
	return nil
}

func (s *strike) unarchive(name string) error {
	return s.retried(func(ctx context.Context) error { return s.store.UnarchiveTenant(ctx, name) })
}

// extent is how many events a tenant has, how many its projections have applied, and how many of its leases have
// owners.
type extent struct{ Head, Applied, Owned int64 }

func (s *strike) extent(name string) (e extent, err error) {
	err = s.retried(func(ctx context.Context) error {
		return s.admin.QueryRow(ctx, `select (select coalesce(max(global_seq), 0) from `+eventsOf(name)+`),
			(select count(*) from public.applied where tenant = $1),
			(select count(*) from millrace.leases join millrace.projections p using (id) where p.tenant = $1 and owner is not null)`, name).
			Scan(&e.Head, &e.Applied, &e.Owned)
	})
	if err == nil && e.Owned > 0 {
		err = fmt.Errorf("%d leases of the tenant %s have owners", e.Owned, name)
	}
	return e, err
}

// appendRefused verifies that appends to a tenant are refused with that error.
func (s *strike) appendRefused(name string, want error) error {
	tenant, err := s.store.ForTenant(name)
	if err != nil {
		return err
	}
	err = s.retried(func(ctx context.Context) error {
		_, err := tenant.Append(ctx, "refused", event.Any, event.Event{Type: typeOdd})
		return err
	})
	if !errors.Is(err, want) {
		return fmt.Errorf("append to %s returned %v, want %w", name, err, want)
	}
	return nil
}

// pauseTenant pauses a tenant, and resumes it.
func (s *strike) pauseTenant() error {
	name := tenants[s.rnd.IntN(len(tenants))]
	paused := time.Duration(s.rnd.IntN(500)) * time.Millisecond
	s.tenantStates.RLock()
	defer s.tenantStates.RUnlock()
	s.pauses.Lock() // an erasure would end the pause
	defer s.pauses.Unlock()
	rt, err := millrace.New(millrace.Config{Store: s.store})
	if err != nil {
		return err
	}
	err = s.unlessLost(func() error {
		if err := s.retried(func(ctx context.Context) error { return rt.PauseTenant(ctx, name) }); err != nil {
			return err
		}
		before, err := s.extent(name)
		if err != nil {
			return err
		}
		s.wait(paused)
		if after, err := s.extent(name); err != nil || after.Applied != before.Applied {
			return fmt.Errorf("the paused tenant %s had %+v, and then %+v (%v)", name, before, after, err)
		}
		return nil
	})
	return errors.Join(err, s.retried(func(ctx context.Context) error { return rt.ResumeTenant(ctx, name) }))
}

// reopen repeats the ends of archives and pauses that were lost with a server, as an operator would.
func (c *cluster) reopen() (err error) {
	c.tenantStates.Lock() // not those of faults
	defer c.tenantStates.Unlock()
	rt, err := millrace.New(millrace.Config{Store: c.store})
	for _, name := range tenants {
		err = errors.Join(err,
			c.retried(func(ctx context.Context) error { return c.store.UnarchiveTenant(ctx, name) }),
			c.retried(func(ctx context.Context) error { return rt.ResumeTenant(ctx, name) }))
	}
	return err
}

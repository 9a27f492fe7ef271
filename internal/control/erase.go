package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/internal/redact"
	"github.com/millrace-go/millrace/internal/resplit"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/tenancy"
)

const (
	// maxReason limits the reason of an erasure, in bytes, and maxRedacted the events that one RedactEvents names.
	maxReason   = 1000
	maxRedacted = 10_000
)

// Erasure is an erasure in progress: see lifecycle.Erase.
type Erasure struct {
	event.Erasure
	Tenant string
}

// Validate returns an error unless the erasure selects events and has a reason.
func (e *Erasure) Validate() error {
	if e.Stream != "" || e.Positions == nil {
		if err := valid.ID("the stream", e.Stream); err != nil {
			return err
		}
	} else if n := len(e.Positions); n == 0 || n > maxRedacted {
		return fmt.Errorf("from 1 to %d positions can be redacted at once: %d", maxRedacted, n)
	}
	switch {
	case e.Reason == "":
		return errors.New("the reason is empty")
	case len(e.Reason) > maxReason:
		return fmt.Errorf("the reason must have at most %d bytes: %d bytes", maxReason, len(e.Reason))
	}
	e.Positions = distinct(e.Positions)
	return valid.Text("the reason", e.Reason)
}

// Failed adds what the erasure selects to its error.
func (e *Erasure) Failed(err error) error {
	if e.Positions != nil {
		return fmt.Errorf("redact events of tenant %q: %w", e.Tenant, err)
	}
	return fmt.Errorf("erase stream %s: %w", excerpt.Quoted(e.Stream), err)
}

// BeginErasure records an erasure, unless it has an ID, and suspends the projections of its tenant by a pause. The
// record says that the erasure has paused the tenant, so that its end resumes the tenant. If its process dies, the end
// of the next one does.
func (p Tenants) BeginErasure(ctx context.Context, e *Erasure) error {
	for _, t := range []newTable{erasuresTable, snapshotsTable} { // a load that saves a snapshot may begin at any time
		if err := p.makeTable(ctx, t); err != nil {
			return err
		}
	}
	id := e.ID
	err := p.db.Change(ctx, e.Tenant, func(tx store.Tx, state tenancy.State) error {
		if err := Changing(state); err != nil {
			return err
		}
		if err := NotOfTenant(ctx, e.Tenant, "erase"); err != nil {
			return err
		}
		e.ID = id // the transaction may run twice
		var paused bool
		if _, err := tx.One("tenant_paused", []any{e.Tenant}, &paused); err != nil {
			return err
		}
		if e.ID == 0 {
			args := []any{e.Tenant, store.OrNull(e.Stream), e.Positions, e.Reason}
			if _, err := tx.One("insert_erasure", args, &e.ID, &e.RequestedAt); err != nil {
				return err
			}
		}
		if state != tenancy.Archived && !paused {
			tx.Exec("set_erasure_pauses", e.ID)
			SetPaused(tx, e.Tenant, true)
		}
		return nil
	})
	return p.wrap(err, "record the erasure")
}

// EndErasure redacts the events, while no projection of the tenant runs, and removes what else has their contents. It
// returns false if projections run, since the tenant was resumed meanwhile. All of it is one transaction, under the
// structural lock of the tenant and the locks of its projections and leases: so no projection is claimed until its
// commit, and its checkpoints are those at which the events are redacted.
func (p Tenants) EndErasure(ctx context.Context, e *Erasure) (done bool, err error) {
	err = p.db.Change(ctx, e.Tenant, func(tx store.Tx, state tenancy.State) (err error) {
		if err := Changing(state); err != nil {
			return err
		}
		var all partitions
		done, all, err = still(tx, e.Tenant)
		if !done || err != nil {
			return err
		}
		if err := e.redact(tx, all); err != nil {
			return err
		}
		return endPauses(tx, e.Tenant)
	})
	return done && err == nil, p.wrap(err, "redact the events")
}

// still locks all projections of a tenant, and reports whether they are suspended and none has an owner.
func still(tx store.Tx, tenant string) (still bool, all partitions, err error) {
	var suspended, living, dead bool
	if _, err := tx.One("suspension", []any{tenant}, &suspended, &living, &dead); err != nil || !suspended {
		return false, nil, err
	}
	names, err := column[string](tx, "projection_names", tenant)
	if err != nil || len(names) == 0 {
		return true, nil, err
	}
	all, err = lockPartitions(tx, tenant, names...)
	owned := slices.ContainsFunc(all, func(l locked) bool { return l.Owner != resplit.NoOwner })
	return !owned && err == nil, all, err
}

// AbandonErasure forgets an erasure that failed, and resumes the tenant if erasures have paused it.
func (p Tenants) AbandonErasure(ctx context.Context, e *Erasure) error {
	err := p.db.Change(ctx, e.Tenant, func(tx store.Tx, _ tenancy.State) error {
		if err := endPauses(tx, e.Tenant); err != nil {
			return err
		}
		tx.Exec("delete_erasure", e.ID)
		return nil
	})
	return p.wrap(err, "resume the tenant")
}

// endPauses resumes a tenant that erasures have paused.
func endPauses(tx store.Tx, tenant string) error {
	paused, err := tx.One("end_erasure_pauses", []any{tenant})
	if paused {
		SetPaused(tx, tenant, false)
	}
	return err
}

// selected is an event that an erasure selects.
type selected struct {
	position     int64
	stream, kind string
	headers      string
}

func (e *Erasure) redact(tx store.Tx, all partitions) error {
	events, err := e.lockEvents(tx)
	if err != nil {
		return err
	}
	positions := make([]int64, len(events))
	streams := make([]string, len(events))
	var left []int64 // that are not redacted yet
	e.Types = nil
	for i, s := range events {
		positions[i], streams[i] = s.position, s.stream
		e.Types = append(e.Types, s.kind)
		if !redact.Is([]byte(s.headers)) {
			left = append(left, s.position)
		}
	}
	e.Types, streams = distinct(e.Types), distinct(streams)
	e.Events = int64(len(left))
	e.Applied, e.Delivered, err = all.applied(tx, e.Tenant, events, left)
	if err != nil {
		return err
	}
	// Also those that are redacted by their headers: other programs can insert such headers beside a body.
	tx.Exec("redact_events", e.Tenant, positions, redact.Body, redact.Headers(e.RequestedAt))
	tx.Exec("redact_dead_letters", e.Tenant, positions, redact.Text)
	tx.Exec("redact_failures", e.Tenant, positions, redact.Text)
	tx.Exec("erase_keys", e.Tenant, positions)
	tx.Exec("erase_snapshots", e.Tenant, streams)
	_, err = tx.One("end_erasure", []any{e.ID, e.Events, e.Types, e.Applied, e.Delivered}, &e.EndedAt)
	return err
}

// lockEvents returns the events that the erasure selects. If it erases a stream, appends to it wait until the commit,
// and its aliases are removed.
func (e *Erasure) lockEvents(tx store.Tx) (events []selected, err error) {
	aliased := false
	if e.Stream != "" {
		var version int64
		tx.Later("lock_stream", []any{e.Tenant, e.Stream}, &version)
		aliased, err = tx.One("erase_aliases", []any{e.Tenant, e.Stream})
		if err != nil {
			return nil, err
		}
	}
	var s selected
	err = tx.Each("selected_events", []any{e.Tenant, store.OrNull(e.Stream), e.Positions},
		[]any{&s.position, &s.stream, &s.kind, &s.headers}, func() error {
			events = append(events, s)
			return nil
		})
	if err != nil {
		return nil, err
	}
	if e.Stream != "" {
		if len(events) == 0 && !aliased {
			return nil, event.ErrNotFound // the caller names the stream
		}
		return events, nil
	}
	slices.SortFunc(events, func(a, b selected) int { return cmp.Compare(a.position, b.position) })
	for i, position := range e.Positions {
		if i >= len(events) || events[i].position != position {
			return nil, fmt.Errorf("position %d: %w", position, event.ErrNotFound)
		}
	}
	return events, nil
}

// applied returns the names of the projections that have passed events at some positions, and of those that deliver.
// Events that are parked or were discarded are not applied.
func (all partitions) applied(tx store.Tx, tenant string, events []selected,
	positions []int64) (applied, delivered []string, err error) {
	type letter struct {
		row      int32
		position int64
	}
	var l letter
	letters := make(map[letter]bool)
	err = tx.Each("unapplied_events", []any{tenant, positions}, []any{&l.row, &l.position}, func() error {
		letters[l] = true
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	for _, p := range all {
		passed := slices.ContainsFunc(events, func(s selected) bool {
			return p.Slots().Contains(partition.Slot(s.stream)) &&
				s.position <= p.HandledUpTo(s.stream, p.Checkpoint) &&
				!redact.Is([]byte(s.headers)) && !letters[letter{p.Row, s.position}]
		})
		switch {
		case passed && p.delivers:
			delivered = append(delivered, p.name)
		case passed:
			applied = append(applied, p.name)
		}
	}
	return distinct(applied), distinct(delivered), nil
}

// distinct sorts a list and removes repeats.
func distinct[T cmp.Ordered](list []T) []T {
	slices.Sort(list)
	return slices.Compact(list)
}

// Erasures returns the erasures of a tenant, the oldest first.
func (p Tenants) Erasures(ctx context.Context, tenant string) (list []event.Erasure, err error) {
	err = p.db.View(ctx, func(v store.View) error {
		list = nil
		if made, err := erasuresTable.wasMade(v); !made || err != nil {
			return err
		}
		var e event.Erasure
		columns := []any{
			&e.ID, &e.Stream, &e.Positions, &e.Reason, &e.RequestedAt, &e.EndedAt, &e.Events, &e.Types, &e.Applied,
			&e.Delivered,
		}
		return v.Each("erasures", []any{tenant}, columns, func() error {
			e.RequestedAt, e.EndedAt = valid.Time(e.RequestedAt), valid.Time(e.EndedAt)
			list = append(list, e)
			return nil
		})
	})
	return list, p.wrap(err, "list the erasures")
}

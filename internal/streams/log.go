package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/upcast"
)

// New returns the Log of a driver.
func New[Tx any](d Driver[Tx]) Log { return log[Tx]{driver: d} }

// log is a Log. within reports whether there is a transaction of the caller.
type log[Tx any] struct {
	driver Driver[Tx]
	tx     Tx
	within bool
}

func (l log[Tx]) Tenant() string { return l.driver.Name() }

func (l log[Tx]) Source() (Source, bool) {
	erasures := l.driver.Erasures()
	return Source{store: erasures, erasures: erasures.Load(), tenant: l.Tenant()}, !l.within
}

// IsConflict is a conflict of the store only outside of a transaction of the caller, which the server has aborted
// otherwise.
func (l log[Tx]) IsConflict(err error) bool {
	return errors.Is(err, event.ErrVersionConflict) || !l.within && l.driver.IsConflict(err)
}

func (l log[Tx]) Accepts(h handler.Hook) error {
	if want := reflect.TypeFor[Tx](); h.Tx != want {
		return fmt.Errorf("the hook takes %v, and the store gives %v", h.Tx, want)
	}
	return nil
}

func (l log[Tx]) Within(tx any) Log {
	return log[Tx]{driver: l.driver, tx: tx.(Tx), within: true}
}

func (l log[Tx]) Read(ctx context.Context, r Read) (Page, error) {
	types := l.driver.Types()
	if r.Fingerprint != "" {
		made, err := l.hasSnapshots(ctx)
		if err != nil {
			return Page{}, err
		}
		r.Fingerprint += types.Fingerprint()
		if !made {
			r.Fingerprint = ""
		}
	}
	last := r.Last
	if last != nil { // the page has it
		r.After--
		begin := r.Begin
		r.Begin = func(s *Snapshot) bool {
			last = nil // the snapshot is a later one
			return begin(s)
		}
	}
	var failed error
	page, err := l.driver.ReadPage(ctx, l.tx, r, func(stored *event.Envelope) bool {
		if last != nil {
			if !last.is(stored) {
				return false
			}
			last = nil
			return true
		}
		failed = current(types, stored, r.Each)
		return failed == nil
	})
	page.Changed = last != nil
	return page, cmp.Or(failed, err)
}

func (l *Last) is(e *event.Envelope) bool {
	return e.Version == l.Version && e.Position == l.Position && e.Time.Equal(l.Time)
}

// current calls each with the current events in place of a stored one.
func current(types *upcast.Graph, stored *event.Envelope, each func(e *event.Envelope) error) error {
	if stored.Unreadable != nil || !types.Outdated(stored.Type) {
		return each(stored)
	}
	events, err := types.Upcast(*stored)
	if err != nil {
		return err
	}
	for i := range events {
		if err := each(&events[i]); err != nil {
			return err
		}
	}
	return nil
}

// hasSnapshots makes the table of snapshots, if it does not exist and no transaction is open.
func (l log[Tx]) hasSnapshots(ctx context.Context) (made bool, err error) {
	known := l.driver.SnapshotsMade()
	if known.Load() {
		return true, nil
	}
	if l.within {
		err = l.driver.Control(ctx, l.tx, func(t store.Tx) (err error) {
			made, err = control.HasSnapshots(t)
			return err
		})
	} else {
		err = l.driver.MakeSnapshots(ctx)
		made = err == nil
	}
	if made {
		known.Store(true)
	}
	return made, err
}

func (l log[Tx]) First(ctx context.Context, key string) (First, bool, error) {
	return l.driver.FirstAppend(ctx, l.tx, key)
}

// repeatedError undoes a transaction whose idempotency key was used before.
type repeatedError struct{ first event.Appended }

func (e repeatedError) Error() string { return "the idempotency key was used before" }

// Commit needs a transaction unless it is one append. An append in a transaction of the caller leaves it usable after a
// conflict, and several need a savepoint for that.
func (l log[Tx]) Commit(ctx context.Context, c Commit) (results []event.Appended, err error) {
	run := func(ctx context.Context, tx Tx) (err error) {
		results, err = l.commitIn(ctx, tx, c)
		return err
	}
	alone := len(c.Appends) == 1 && len(c.Hooks) == 0 && c.Snapshots == nil
	switch {
	case alone && !l.within:
		a := c.Appends[0]
		result, err := l.driver.Append(ctx, a.Stream, a.Expected, a.Events...)
		return []event.Appended{result}, err
	case alone, len(c.Appends) == 0 && l.within:
		err = run(ctx, l.tx)
	case !l.within:
		err = l.driver.InTx(ctx, run)
	default:
		err = l.driver.Savepoint(ctx, l.tx, func(tx Tx) error { return run(ctx, tx) })
	}
	if repeated, ok := err.(repeatedError); ok { // nothing wraps it
		return []event.Appended{repeated.first}, nil
	}
	return results, err
}

// commitIn appends in a transaction. It locks several streams in the order of their ids first, so that two commits to
// the same streams wait for one another, and do not deadlock. A stream without events has no row to lock.
func (l log[Tx]) commitIn(ctx context.Context, tx Tx, c Commit) ([]event.Appended, error) {
	if len(c.Appends) > 1 {
		if err := l.prepare(ctx, tx, c); err != nil {
			return nil, err
		}
	}
	results := make([]event.Appended, len(c.Appends))
	for i, a := range c.Appends {
		result, err := l.driver.AppendTx(ctx, tx, a.Stream, a.Expected, a.Events...)
		if err != nil {
			return nil, err
		}
		if result.Repeated {
			return nil, repeatedError{result}
		}
		results[i] = result
	}
	for _, h := range c.Hooks {
		if err := h.Call(ctx, tx); err != nil {
			return nil, err
		}
	}
	if c.Snapshots == nil {
		return results, nil
	}
	snapshots, err := c.Snapshots(ctx, l.Within(tx))
	if err != nil {
		return nil, err
	}
	// the order in which they are locked
	slices.SortFunc(snapshots, func(a, b Snapshot) int { return strings.Compare(a.Stream, b.Stream) })
	return results, l.driver.Control(ctx, tx, func(t store.Tx) error {
		for _, s := range snapshots {
			s.Fingerprint += l.driver.Types().Fingerprint()
			control.SaveSnapshot(t, l.Tenant(), s)
		}
		return nil
	})
}

// prepare looks for the key of several appends, since an earlier one of them may conflict, and locks the streams.
func (l log[Tx]) prepare(ctx context.Context, tx Tx, c Commit) error {
	if key, keyed := c.Appends[len(c.Appends)-1].Expected.Key(); keyed {
		first, found, err := l.driver.FirstAppend(ctx, tx, key)
		if err != nil {
			return err
		}
		if found {
			return repeatedError{first.Appended}
		}
	}
	names := make([]string, len(c.Appends))
	for i, a := range c.Appends {
		names[i] = a.Stream
	}
	slices.Sort(names)
	return l.driver.Control(ctx, tx, func(t store.Tx) error {
		control.LockStreams(t, l.Tenant(), names)
		return nil
	})
}

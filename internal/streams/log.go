package streams

import (
	"context"
	"slices"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/store"
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

func (l log[Tx]) IsConflict(err error) bool { return l.driver.IsConflict(err) }

func (l log[Tx]) Within(tx any) Log {
	return log[Tx]{driver: l.driver, tx: tx.(Tx), within: true}
}

func (l log[Tx]) Read(ctx context.Context, r Read) (Page, error) {
	if r.Fingerprint != "" {
		if err := l.driver.PrepareSnapshots(ctx); err != nil {
			return Page{}, err
		}
	}
	return l.driver.ReadPage(ctx, l.tx, r)
}

func (l log[Tx]) First(ctx context.Context, key string) (First, bool, error) {
	return l.driver.FirstAppend(ctx, l.tx, key)
}

// repeatedError undoes a transaction whose idempotency key was used before.
type repeatedError struct{ first event.Appended }

func (e repeatedError) Error() string { return "the idempotency key was used before" }

// Commit needs a transaction unless it is one append. An append in a transaction of the caller leaves it usable after a conflict, and
// several need a savepoint for that.
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
	case alone:
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

// commitIn appends in a transaction. It locks several streams in the order of their ids first, so that two commits to the same streams
// wait for one another, and do not deadlock. A stream without events has no row to lock.
func (l log[Tx]) commitIn(ctx context.Context, tx Tx, c Commit) ([]event.Appended, error) {
	if len(c.Appends) > 1 {
		streams := make([]string, len(c.Appends))
		for i, a := range c.Appends {
			streams[i] = a.Stream
		}
		slices.Sort(streams)
		err := l.driver.Control(ctx, tx, func(tx store.Tx) error { return control.LockStreams(tx, l.Tenant(), streams) })
		if err != nil {
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
	return results, l.driver.Control(ctx, tx, func(t store.Tx) error { return saveSnapshots(t, l.Tenant(), snapshots) })
}

func saveSnapshots(tx store.Tx, tenant string, snapshots []Snapshot) error {
	for _, s := range snapshots {
		control.SaveSnapshot(tx, tenant, control.Snapshot{
			Stream: s.Stream, Version: s.Version, Position: s.Position, Time: s.Time, Fingerprint: s.Fingerprint, State: string(s.State), Generation: s.Generation,
		})
	}
	return nil
}

// Package tuning has the settings of a runtime that no user sets, because no deployment is better off with other
// values. Tests of this module set them: a Settings is a millrace.Store that carries them to the runtime.
package tuning

import (
	"cmp"
	"time"

	"github.com/millrace-go/millrace/internal/store"
)

const (
	// Heartbeat is the time between the heartbeats of a node: one update of one row, however many projections the node
	// has. There are at least five in a lease's duration, so that four may be lost on a busy server. It is not longer
	// with long leases, since a heartbeat also carries the node's figures for a status.
	Heartbeat = time.Second
	// heartbeats is how many heartbeats a lease lasts at least.
	heartbeats = 5
	// Reconcile is how often a node searches for free leases. Notifications say at once which are free, so a search
	// finds only those whose notification was lost. It is one statement for a node, whatever the number of its
	// projections. Shorter would not help where notifications arrive, and longer would delay takeovers behind a pooler.
	Reconcile = 2 * time.Second
	// Advance is how long a checkpoint may lag because of events that its projection does not select. To write it costs
	// a small update. An event that the projection selects writes it anyway, and a rebuild or takeover reads some
	// seconds of events again.
	Advance = 5 * time.Second
	// Query bounds each call of the database that runs no handler. All of them take milliseconds, and seconds on an
	// overloaded server. After a shorter time such a server would get the same calls again, and after a longer one a
	// connection that hangs is noticed late.
	Query = 10 * time.Second
	// MoveWait bounds the wait of a move for the writer of the target, while it holds the one of the source: two
	// processes that move tenants between two files in opposite directions would wait for each other. Shorter would
	// give up because of a long transaction, and longer would hold up appends to the source.
	MoveWait = 30 * time.Second
)

// Settings are the settings of one runtime, and of moves to its store. Zero means the constant.
type Settings struct {
	// Store is the store of the runtime.
	Store                                          store.Holder
	Heartbeat, Reconcile, Advance, Query, MoveWait time.Duration
}

// Engine makes Settings a millrace.Store.
func (s Settings) Engine() store.Driver { return store.DriverOf(s.Store) }

// Of returns the settings of a runtime with that store and duration of leases.
func Of(h store.Holder, lease time.Duration) Settings {
	s, tuned := h.(Settings)
	if !tuned {
		s.Store = h
	}
	s.Heartbeat = cmp.Or(s.Heartbeat, min(Heartbeat, lease/heartbeats))
	s.Reconcile = cmp.Or(s.Reconcile, Reconcile)
	s.Advance = cmp.Or(s.Advance, Advance)
	s.Query = cmp.Or(s.Query, Query)
	s.MoveWait = cmp.Or(s.MoveWait, MoveWait)
	return s
}

package admin

import (
	"errors"
	"time"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/internal/waiting"
)

// Store is where events, checkpoints and leases are kept. *pgstore.Store and *sqlitestore.Store are Stores.
type Store interface {
	// Engine is for packages of this module.
	Engine() store.Driver
}

// Admin observes and changes the projections of a store, on all nodes. It needs no runtime: any process with
// access to the store may use one. Every millrace.Runtime is an Admin that also knows what its own node does. It is
// safe for concurrent use.
type Admin struct {
	store store.Driver
	plane control.Plane
	// timeout bounds each call of the database. patience is how long a projection may have no living owner.
	timeout, patience time.Duration
	// waiter knows the runtime of a Runtime's Admin.
	waiter waiting.Waiter
	// operations waits for the ends of operations, and marks for positions to be settled.
	operations operationWaiter
	marks      settledMarks
}

// New returns an Admin of a store. It does not use the store until a method is called, and never closes it.
func New(s Store) (*Admin, error) {
	driver := store.DriverOf(s)
	if driver == nil {
		return nil, errors.New("new admin: the store must not be nil")
	}
	of, ofRuntime := s.(waiting.Store)
	if !ofRuntime {
		of = waiting.Store{
			Waiter:   waiting.Waiter{Store: driver, Plane: control.On(driver), Timeout: tuning.Query},
			Patience: engine.DefaultLeaseDuration,
		}
	}
	w := of.Waiter
	return &Admin{store: w.Store, plane: w.Plane, timeout: w.Timeout, patience: of.Patience, waiter: w,
		operations: operationWaiter{store: w.Store, plane: w.Plane, timeout: w.Timeout},
		marks:      settledMarks{store: w.Store, timeout: w.Timeout}}, nil
}

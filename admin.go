package millrace

import (
	"errors"
	"time"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/store"
)

// Admin observes and changes the projections of a store, on all nodes. It needs no runtime: any process with
// access to the store may use one. Every Runtime is an Admin that also knows what its own node does. It is safe for concurrent
// use.
type Admin struct {
	store store.Driver
	plane control.Plane
	// timeout bounds each call of the database. patience is how long a projection may have no living owner.
	timeout, patience time.Duration
	// runtime is nil unless the Admin is that of a Runtime.
	runtime *Runtime
}

// NewAdmin returns an Admin of a store. It does not use the store until a method is called, and never closes it.
func NewAdmin(store Store) (*Admin, error) {
	defaults := Config{}.withDefaults()
	driver := driverOf(store)
	if driver == nil {
		return nil, errors.New("new admin: the store must not be nil")
	}
	return &Admin{store: driver, plane: control.On(driver), timeout: defaults.QueryTimeout, patience: defaults.LeaseDuration}, nil
}

// running returns what the actors of the Admin's runtime share. It is nil if the Admin has no runtime, and while the runtime is
// not running.
func (a *Admin) running() *actors.Deps {
	if a.runtime == nil {
		return nil
	}
	a.runtime.mu.Lock()
	defer a.runtime.mu.Unlock()
	return a.runtime.deps
}

// knows reports whether the Admin's runtime can run the projection.
func (a *Admin) knows(id ProjectionID) bool { return a.runtime != nil && a.runtime.knows(id) }

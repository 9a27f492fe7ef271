//go:build !released

package service

import (
	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/tenancy"
)

// These names were others in the release: see names_released.go.
type (
	statusFilter = admin.StatusFilter
	tenantState  = tenancy.State
)

const (
	statePaused  = admin.StatePaused
	tenantActive = tenancy.Active
)

var (
	newAdmin          = admin.New
	errTenantArchived = tenancy.ErrArchived
)

// quick returns the configuration of a node that notices changes soon.
func quick(store millrace.Store, name string) millrace.Config {
	return millrace.Config{
		Store: tuning.Settings{Store: store, Heartbeat: soon, Reconcile: soon, Advance: soon}, NodeName: name,
		FailureDetection: soon,
	}
}

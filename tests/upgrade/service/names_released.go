//go:build released

package service

import (
	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/projection"
)

type (
	statusFilter = millrace.StatusFilter
	tenantState  = projection.TenantState
)

const (
	statePaused  = millrace.StatePaused
	tenantActive = projection.TenantActive
)

var (
	newAdmin          = millrace.NewAdmin
	errTenantArchived = projection.ErrTenantArchived
)

func quick(store millrace.Store, name string) millrace.Config {
	return millrace.Config{
		Store: store, NodeName: name, HeartbeatInterval: soon, FailureDetection: soon, ReconcileInterval: soon,
		AdvanceInterval: soon,
	}
}

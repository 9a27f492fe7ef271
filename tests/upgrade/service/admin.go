//go:build !released

package service

import "github.com/millrace-go/millrace/admin"

// These names stood in another package in the release: see admin_released.go.
type statusFilter = admin.StatusFilter

const statePaused = admin.StatePaused

var newAdmin = admin.New

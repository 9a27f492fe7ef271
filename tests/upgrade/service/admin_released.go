//go:build released

package service

import "github.com/millrace-go/millrace"

type statusFilter = millrace.StatusFilter

const statePaused = millrace.StatePaused

var newAdmin = millrace.NewAdmin

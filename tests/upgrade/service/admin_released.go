//go:build released

package service

import "github.com/millrace-go/millrace"

type statusFilter = millrace.StatusFilter

const statePaused = millrace.StatePaused

var newAdmin = millrace.NewAdmin

func quick(store millrace.Store, name string) millrace.Config {
	return millrace.Config{Store: store, NodeName: name, HeartbeatInterval: soon, FailureDetection: soon, ReconcileInterval: soon, AdvanceInterval: soon}
}

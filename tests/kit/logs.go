package kit

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// Logs makes a logger and what it logs.
func Logs() (*zap.Logger, *observer.ObservedLogs) {
	core, logs := observer.New(zap.InfoLevel)
	return zap.New(core), logs
}

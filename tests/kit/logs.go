package kit

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// Logs returns a logger and the entries that it records.
func Logs() (*zap.Logger, *observer.ObservedLogs) {
	core, logs := observer.New(zap.InfoLevel)
	return zap.New(core), logs
}

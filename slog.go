package millrace

import (
	"log/slog"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/logging"
)

// SlogLogger returns a logger for Config.Logger that writes to a logger of package log/slog:
//
//	millrace.Config{Logger: millrace.SlogLogger(slog.Default())}
//
// If log is nil, nothing is logged. The logger's handler decides which levels are written. An error is passed to it as
// the attribute "error", whose value is the error itself.
func SlogLogger(log *slog.Logger) *zap.Logger { return logging.Slog(log) }

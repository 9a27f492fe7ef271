// Package logging passes log entries on, without letting the errors in them do harm.
package logging

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Slog returns a logger that writes to a logger of package log/slog. It writes nothing if log is nil.
func Slog(log *slog.Logger) *zap.Logger {
	if log == nil {
		return zap.NewNop()
	}
	return zap.New(slogCore{log.Handler()}, zap.AddCaller())
}

// slogCore is a zapcore.Core that writes to a slog.Handler.
type slogCore struct{ handler slog.Handler }

func (c slogCore) Enabled(level zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), slogLevel(level))
}

// With returns a core that adds the fields to each entry.
func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	for i, f := range fields {
		if f.Type == zapcore.NamespaceType {
			inner := slogCore{c.handler.WithAttrs(slogAttrs(fields[:i])).WithGroup(f.Key)}
			return inner.With(fields[i+1:])
		}
	}
	return slogCore{c.handler.WithAttrs(slogAttrs(fields))}
}

func (c slogCore) Check(entry zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return to.AddCore(entry, c)
	}
	return to
}

func (c slogCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	record := slog.NewRecord(entry.Time, slogLevel(entry.Level), entry.Message, entry.Caller.PC)
	record.AddAttrs(slogAttrs(fields)...)
	if entry.LoggerName != "" {
		record.AddAttrs(slog.String("logger", entry.LoggerName))
	}
	if entry.Stack != "" {
		record.AddAttrs(slog.String("stack", entry.Stack))
	}
	return c.handler.Handle(context.Background(), record)
}

// Sync does nothing: a slog.Handler has no buffer that others flush.
func (c slogCore) Sync() error { return nil }

// slogLevel returns the level of slog that means the same. Levels above errors, with which zap ends the process, are
// errors.
func slogLevel(level zapcore.Level) slog.Level {
	switch {
	case level < zapcore.InfoLevel:
		return slog.LevelDebug
	case level < zapcore.WarnLevel:
		return slog.LevelInfo
	case level < zapcore.ErrorLevel:
		return slog.LevelWarn
	}
	return slog.LevelError
}

// slogAttrs returns fields as attributes, in their order. Fields after a namespace are a group.
func slogAttrs(fields []zapcore.Field) []slog.Attr {
	attrs := make([]slog.Attr, 0, len(fields))
	for i, f := range fields {
		if f.Type == zapcore.NamespaceType {
			return append(attrs, slog.Attr{Key: f.Key, Value: slog.GroupValue(slogAttrs(fields[i+1:])...)})
		}
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			attrs = append(attrs, slog.Any(f.Key, err))
			continue
		}
		encoded := zapcore.NewMapObjectEncoder()
		f.AddTo(encoded)
		for key, value := range encoded.Fields { // one, for most kinds of fields
			attrs = append(attrs, slog.Any(key, value))
		}
	}
	return attrs
}

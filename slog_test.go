package millrace_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace"
)

// loggedBySlog returns what a logger for slog writes as JSON, without the time and the source, and the files of the
// sources.
func loggedBySlog(t *testing.T, level slog.Level, write func(log *zap.Logger)) (entries []map[string]any,
	sources []string) {
	t.Helper()
	var out bytes.Buffer
	write(millrace.SlogLogger(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{AddSource: true, Level: level}))))
	for line := range strings.Lines(out.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		source, _ := entry["source"].(map[string]any)
		file, _ := source["file"].(string)
		sources = append(sources, filepath.Base(file))
		if entry["time"] == nil {
			t.Errorf("no time in %s", line)
		}
		delete(entry, "time")
		delete(entry, "source")
		entries = append(entries, entry)
	}
	return entries, sources
}

func TestSlogLoggerWritesWhatIsLogged(t *testing.T) {
	t.Parallel()
	entries, sources := loggedBySlog(t, slog.LevelInfo, func(log *zap.Logger) {
		log.Debug("left out")
		log.Info("started", zap.String("tenant", "t"), zap.Int64("position", 7), zap.Duration("took", time.Second),
			zap.Strings("names", []string{"a", "b"}))
		log.With(zap.String("projection", "p")).Warn("retrying", zap.Error(io.EOF), zap.Stringer("kind", zap.WarnLevel))
		log.Named("inner").Error("failed", zap.NamedError("reason", errors.New("no")), zap.Namespace("in"),
			zap.Bool("deep", true))
		log.With(zap.Int("a", 1), zap.Namespace("in")).Info("group", zap.Int("b", 2))
	})
	want := []map[string]any{
		{"level": "INFO", "msg": "started", "tenant": "t", "position": 7., "took": 1e9, "names": []any{"a", "b"}},
		{"level": "WARN", "msg": "retrying", "projection": "p", "error": "EOF", "kind": "warn"},
		{"level": "ERROR", "msg": "failed", "reason": "no", "in": map[string]any{"deep": true}, "logger": "inner"},
		{"level": "INFO", "msg": "group", "a": 1., "in": map[string]any{"b": 2.}},
	}
	if !reflect.DeepEqual(entries, want) {
		t.Errorf("logged %v, want %v", entries, want)
	}
	for _, source := range sources {
		if source != "slog_test.go" {
			t.Errorf("source %s", source)
		}
	}
	if log := millrace.SlogLogger(slog.New(slog.NewTextHandler(io.Discard,
		&slog.HandlerOptions{Level: slog.LevelError}))); log.Core().Enabled(zap.WarnLevel) ||
		!log.Core().Enabled(zap.ErrorLevel) {
		t.Error("the handler does not decide about levels")
	}
}

// A slog handler may want the error itself, for instance for its type.
func TestSlogLoggerKeepsErrors(t *testing.T) {
	t.Parallel()
	var got error
	handler := slog.NewTextHandler(io.Discard,
		&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == "error" {
				got, _ = a.Value.Any().(error)
			}
			return a
		}})
	millrace.SlogLogger(slog.New(handler)).Error("failed", zap.Error(io.EOF))
	if got != io.EOF {
		t.Errorf("%v", got)
	}
}

package millrace_test

import (
	"log/slog"
	"os"

	"github.com/millrace-go/millrace"
)

// Logs go to a logger of package log/slog.
func ExampleSlogLogger() {
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	config := millrace.Config{Logger: millrace.SlogLogger(log)}
	config.Logger.Info("runtime started")
	// Output:
	// level=INFO msg="runtime started"
}

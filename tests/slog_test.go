package tests_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/tests/kit"
)

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.String()
}

func TestRuntimeLogsToSlog(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 1)
		out := new(lockedBuffer)
		rt := b.Runtime(millrace.Config{Logger: millrace.SlogLogger(slog.New(slog.NewTextHandler(out, nil)))},
			millrace.Projection{
				Name: "p", Retry: kit.Soon(0), Handler: b.Store.Batch(kit.FailsAt("p", kit.Any, kit.Fails)),
			})
		b.RunUntilIdle(rt)
		for _, want := range []string{`level=INFO msg="runtime started"`, `level=INFO msg="runtime ended"`,
			"projection=p", "position=1", "on purpose"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s is not logged: %s", want, out)
			}
		}
	})
}

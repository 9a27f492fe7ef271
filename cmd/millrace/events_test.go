package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/pgtest"
)

func TestInterruptedImportContinues(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		const events = 3*importChunk + 7
		lines := make([]string, events)
		for i := range lines {
			lines[i] = fmt.Sprintf(`{"stream":"s%d","type":"T","body":{"n":%d}}`, i%10, i)
		}
		path := filepath.Join(t.TempDir(), "log.ndjson")
		broken := slices.Clone(lines)
		broken[2*importChunk+3] = "nonsense"
		for _, step := range []struct {
			content []string
			status  int
			says    string
		}{
			{broken, misused, "line 1004: not a JSON object"},
			{lines, done, "imported 507 events; 1000 events had been imported before"},
			{lines, done, "imported 0 events; 1507 events had been imported before"},
		} {
			if err := os.WriteFile(path, []byte(strings.Join(step.content, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			if out := p.must(t, step.status, "events", "import", path, "--key", "the-log"); !strings.Contains(out, step.says) {
				t.Errorf("printed %q, want %q", out, step.says)
			}
		}
		exported := p.must(t, done, "events", "export")
		for i, line := range strings.Split(strings.TrimSpace(exported), "\n") {
			if want := fmt.Sprintf(`"stream":"s%d"`, i%10); !strings.Contains(line, want) || !strings.Contains(line, fmt.Sprintf(`"body":{"n":%d}`, i)) {
				t.Fatalf("line %d: %s, want %s", i+1, line, want)
			}
		}
		if n := strings.Count(exported, "\n"); n != events {
			t.Errorf("%d events, want %d", n, events)
		}
		if out := p.must(t, done, "events", "count", "--stream", "s3"); out != "151\n" {
			t.Error(out)
		}
	})
}

// lockedBuffer is a buffer that a command writes to while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func TestFollowedTailShowsNewEventsUntilInterrupted(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		for i := range 30 {
			p.must(t, done, "events", "append", fmt.Sprint("old-", i), []string{"Old", "Other"}[i%2])
		}
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		var out, errs lockedBuffer
		ended := make(chan int, 1)
		go func() {
			ended <- execute(ctx, append([]string{"events", "tail", "-f", "-n", "3", "--type", "Old,New", "--json"}, p.flags...), strings.NewReader(""), &out, &errs)
		}()
		shown := func(want string) func() bool { return func() bool { return strings.Contains(out.String(), want) } }
		eventually(t, "the last old event", shown(`"stream":"old-28"`))
		p.must(t, done, "events", "append", "new-1", "New")
		p.must(t, done, "events", "append", "new-2", "Other")
		p.must(t, done, "events", "append", "new-3", "New")
		eventually(t, "the new events", shown(`"stream":"new-3"`))
		interrupt()
		if status := <-ended; status != done || errs.String() != "" {
			t.Errorf("status %d: %s", status, errs.String())
		}
		var streams []string
		for line := range strings.Lines(out.String()) {
			_, after, _ := strings.Cut(line, `"stream":"`)
			stream, _, _ := strings.Cut(after, `"`)
			streams = append(streams, stream)
		}
		if want := []string{"old-24", "old-26", "old-28", "new-1", "new-3"}; !slices.Equal(streams, want) {
			t.Errorf("showed %v, want %v", streams, want)
		}
	})
}

func TestMigrationsOfOtherToolsAreThoseOfMigrateUp(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	p := place{"postgres", dsn, []string{"--database-url", dsn}}
	if out := p.must(t, foundSomething, "migrate", "status"); out != "the store is at version 0, this program at 1\n" {
		t.Error(out)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, args := range [][]string{{"migrate", "sql"}, {"migrate", "sql", "--tenant", "default"}} {
		sql := place{}.must(t, done, args...)
		if _, err := conn.Exec(t.Context(), "begin;"+sql+"commit", pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	p.must(t, done, "migrate", "status")
	p.must(t, done, "events", "append", "order-1", "OrderPlaced")
	if _, err := conn.Exec(t.Context(), "update millrace.tenants set version = 0"); err != nil {
		t.Fatal(err)
	}
	if out := p.must(t, foundSomething, "migrate", "status"); !strings.Contains(out, "1 tenant to migrate: default") {
		t.Error(out)
	}
}

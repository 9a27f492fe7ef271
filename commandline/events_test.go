package commandline

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
			{lines[:2*importChunk], done, "imported 1000 events"}, // as much as an import has appended that is killed
			{lines, done, "imported 507 events; 1000 events had been imported before"},
			{lines, done, "imported 0 events; 1507 events had been imported before"},
		} {
			if err := os.WriteFile(path, []byte(strings.Join(step.content, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			if out := p.must(t, step.status, "events", "import", path, "--key", "the-log"); !strings.Contains(out,
				step.says) {
				t.Errorf("printed %q, want %q", out, step.says)
			}
		}
		exported, errs, status := p.run(t, "events", "export")
		if status != done {
			t.Fatalf("status %d: %s", status, errs)
		}
		for i, line := range strings.Split(strings.TrimSpace(exported), "\n") {
			if want := fmt.Sprintf(`"stream":"s%d"`, i%10); !strings.Contains(line, want) ||
				!strings.Contains(line, fmt.Sprintf(`"body":{"n":%d}`, i)) {
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
			ended <- execute(ctx, append([]string{"events", "tail", "-f", "-n", "3", "--type", "Old,New", "--json"},
				p.flags...), Options{}, strings.NewReader(""), &out, &errs)
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
	p := place{name: "postgres", at: dsn, flags: []string{"--database-url", dsn}}
	if out := p.must(t, foundSomething, "migrate", "status"); out != "the store is at version 0, this program at 2\n" {
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

// Another program may insert events with any time that the server knows. JSON has no times before year 1 and after
// 9999.
func TestEventsOfAnyTimeAreExportedAndImported(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	p := place{name: "postgres", at: dsn, flags: []string{"--database-url", dsn}}
	p.must(t, done, "migrate", "up")
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	times := []string{
		"2026-01-02 03:04:05.678901+00", "infinity", "-infinity", "4713-01-01 00:00:00+00 BC",
		"294276-12-31 23:59:59+00", "9999-12-31 23:59:59.999999+00", "10000-01-01 00:00:00+00",
	}
	if _, err := conn.Exec(t.Context(), `insert into millrace_default.streams values ('s', $1)`,
		len(times)); err != nil {
		t.Fatal(err)
	}
	for i, at := range times {
		_, err := conn.Exec(t.Context(),
			`insert into millrace_default.events (stream_id, stream_version, type, body, created_at)
			values ('s', $1, 'T', '{}', $2::text::timestamptz)`, i+1, at)
		if err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "all.ndjson")
	p.must(t, done, "events", "export", "--output", file)
	p.must(t, done, "events", "stream", "s")
	p.must(t, done, "events", "tail", "--json")
	exported := readText(t, file)
	for i, want := range []string{"2026-01-02T03:04:05.678901Z", "9999-12-31T00:00:00Z", "0001-01-01T00:00:00Z",
		"0001-01-01T00:00:00Z", "9999-12-31T00:00:00Z", "9999-12-31T00:00:00Z", "9999-12-31T00:00:00Z"} {
		if line := strings.Split(exported, "\n")[i]; !strings.Contains(line, `"time":"`+want+`"`) {
			t.Errorf("an event of %s: %s, want %s", times[i], line, want)
		}
	}
	p.must(t, done, "tenants", "create", "copy")
	if out := p.must(t, done, "events", "import", file, "--tenant", "copy"); !strings.Contains(out,
		"imported 7 events") {
		t.Error(out)
	}
}

// Events that are exported and imported keep their times. With --new-times they get others.
func TestImportKeepsTimes(t *testing.T) {
	t.Parallel()
	const line = `{"stream":"s","type":"T","body":1,"time":"2017-01-09T08:49:50.123456Z"}` + "\n" +
		`{"stream":"s","type":"T","body":2}` + "\n"
	given, all := filepath.Join(t.TempDir(), "given.ndjson"), filepath.Join(t.TempDir(), "all.ndjson.gz")
	if err := os.WriteFile(given, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	times := func(t *testing.T, p place, tenant string) []string {
		return regexp.MustCompile(`"time":"[^"]*"`).FindAllString(p.must(t, done, "events", "stream", "s", "--json",
			"--tenant", tenant), -1)
	}
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		p.must(t, done, "tenants", "create", "copy", "new")
		p.must(t, done, "events", "import", given)
		all := all + p.name + ".gz"
		p.must(t, done, "events", "export", "--output", all)
		p.must(t, done, "events", "import", all, "--tenant", "copy")
		p.must(t, done, "events", "import", all, "--tenant", "new", "--new-times")
		want := times(t, p, "default")
		if len(want) != 2 || want[0] != `"time":"2017-01-09T08:49:50.123456Z"` ||
			!slices.Equal(times(t, p, "copy"), want) {
			t.Errorf("the times are %q, and of the copy %q", want, times(t, p, "copy"))
		}
		if now := times(t, p, "new"); now[0] == want[0] || now[1] == want[1] {
			t.Errorf("the new times are %q", now)
		}
	})
}

func readText(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

package commandline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The types of a whole file are checked before any of its events is appended.
func TestProgramImportsNothingOfAFileWithOtherTypes(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		program := p
		program.options = registry(t)
		p.must(t, done, "migrate", "up")
		good := strings.Repeat(`{"stream":"s","type":"Paid","body":{}}`+"\n", importChunk)
		path := filepath.Join(t.TempDir(), "events.ndjson")
		for line, says := range map[string]string{
			`{"stream":"s","type":"Strange","body":{}}`: `line 501: event type "Strange" is not registered`,
			`{"stream":"s","type":"Strange`:             "line 501: not a JSON object",
		} {
			mustWrite(t, path, good+line+"\n")
			for _, flags := range [][]string{nil, {"--key", "k"}} {
				out := program.must(t, misused, append([]string{"events", "import", path}, flags...)...)
				if !strings.Contains(out, "read "+path+": "+says) || strings.Contains(out, "repeat the command") {
					t.Error(out)
				}
			}
			if out := p.must(t, done, "events", "count"); out != "0\n" {
				t.Errorf("%s events were imported", out)
			}
		}
		mustWrite(t, path, good+`{"stream":"s","type":"Placed","body":{}}`+"\n"+
			`{"unreadable":{"position":7,"stream":"s","version":7,"type":"Gone","reason":"damaged"}}`+"\n")
		if out := program.must(t, failed, "events", "import", path); !strings.Contains(out, "imported 501 events\n") ||
			strings.Count(out, "event 7 (Gone of stream \"s\", version 7) could not be read") != 1 {
			t.Error(out)
		}
	})
}

// Otherwise a person who repairs the line and repeats the import would append the events before it twice: the file then
// has another digest.
func TestImportAppendsNothingOfAFileThatItCannotAppend(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		good := strings.Repeat(`{"stream":"s","type":"T","body":1}`+"\n", importChunk)
		path := filepath.Join(t.TempDir(), "events.ndjson")
		for _, c := range []struct{ line, key, says string }{
			{`{"stream":"s","type":"T","body":"\u0000"}`, "", `line 501: event body contains \u0000`},
			{`{"stream":"s","type":"T","body":"\u0000"}`, "k", `line 501: event body contains \u0000`},
			{`{"stream":"s"}`, "", "line 501: event type is empty"},
			{`{"stream":"s","type":"T"}`, strings.Repeat("k", 181), "--key, and the number of a chunk: "},
			{`{"stream":"s","type":"T"}`, "k\xff", "--key, and the number of a chunk: "},
			{`{"stream":"` + strings.Repeat("s", 501) + `","type":"T","body":1}`, "", "line 501: stream"},
		} {
			mustWrite(t, path, good+c.line+"\n")
			args := []string{"events", "import", path}
			if c.key != "" {
				args = append(args, "--key", c.key)
			}
			if out := p.must(t, misused, args...); !strings.Contains(out, c.says) || strings.Contains(out, "repeat") {
				t.Errorf("%s, want %s", out, c.says)
			}
			if out := p.must(t, done, "events", "count"); out != "0\n" {
				t.Errorf("%s: %s events were imported", c.line, out)
			}
		}
	})
}

// An export has the year 1 for an event that another program inserted with an earlier time.
func TestImportKeepsTheFirstTime(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		path := filepath.Join(t.TempDir(), "events.ndjson")
		mustWrite(t, path, `{"stream":"s","type":"T","time":"0001-01-01T00:00:00Z","body":1}`+"\n")
		p.must(t, done, "events", "import", path)
		p.must(t, done, "events", "import", path, "--key", "k", "--new-times")
		out := p.must(t, done, "events", "export")
		if strings.Count(out, `"time":"0001-01-01T00:00:00Z"`) != 1 || strings.Count(out, "\n") != 2 {
			t.Error(out)
		}
	})
}

// A pipe can be read once only.
func TestImportReadsAFileTwice(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	p := place{name: "sqlite", at: path, flags: []string{"--file", path}}
	p.must(t, done, "migrate", "up")
	program := p
	program.options = registry(t)
	for _, c := range []struct {
		place
		status int
		flags  []string
		says   string
	}{
		{p, misused, nil, "is not a regular file, and would be read twice: for its digest, which --key replaces, and for its events"},
		{program, misused, []string{"--key", "k"}, "is not a regular file, and would be read twice: for its types, and for its events"},
		{program, misused, nil, "is not a regular file, and would be read twice"},
		{p, done, []string{"--key", "k"}, "imported 0 events"},
	} {
		out := c.must(t, c.status, append([]string{"events", "import", os.DevNull}, c.flags...)...)
		if !strings.Contains(out, c.says) {
			t.Errorf("%v, registry %v: %s, want %s", c.flags, c.options.Types != nil, out, c.says)
		}
	}
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(fmt.Errorf("write the input: %w", err))
	}
}

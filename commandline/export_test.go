package commandline

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/event"
)

// watched is a store that calls a function after each event that it reads.
type watched struct {
	store
	during func()
}

func (w watched) of(tenant string) (events, error) {
	e, err := w.store.of(tenant)
	return watchedEvents{e, w.during}, err
}

type watchedEvents struct {
	events
	during func()
}

func (w watchedEvents) ReadAll(ctx context.Context, o event.ReadOptions) iter.Seq2[event.Envelope, error] {
	return func(yield func(event.Envelope, error) bool) {
		for e, err := range w.events.ReadAll(ctx, o) {
			if !yield(e, err) {
				return
			}
			w.during()
		}
	}
}

// exportable is a store with large events, in a file of a folder.
func exportable(t *testing.T, events int) (folder string, p place, s store) {
	t.Helper()
	folder = t.TempDir()
	path := filepath.Join(folder, "shop.db")
	p = place{name: "sqlite", flags: []string{"--file", path}}
	p.must(t, done, "migrate", "up")
	for range events {
		p.must(t, done, "events", "append", "s", "T", `"`+strings.Repeat("x", 100_000)+`"`)
	}
	s, err := openFile(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return folder, p, s
}

// A process that is killed cannot remove its file, so an incomplete export has another name.
func TestExportHasItsNameOnceItIsComplete(t *testing.T) {
	t.Parallel()
	folder, p, s := exportable(t, 3)
	for _, name := range []string{"all.ndjson", "all.ndjson.gz"} {
		path := filepath.Join(folder, name)
		seen := 0
		during := func() {
			seen++
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s exists after %d events: %v", name, seen, err)
			}
		}
		c := eventCommands{&cli{out: io.Discard, errs: io.Discard}}
		if err := c.exportFile(t.Context(), watched{s, during}, selection{}, path); err != nil {
			t.Fatal(err)
		}
		if seen != 3 {
			t.Errorf("%d events were read", seen)
		}
		p.must(t, done, "tenants", "create", name)
		if out := p.must(t, done, "events", "import", path, "--tenant", name); !strings.Contains(out,
			"imported 3 events") {
			t.Error(out)
		}
		if out := p.must(t, misused, "events", "export", "--output", path); !strings.Contains(out,
			"--output: "+path+" exists") {
			t.Error(out)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(folder, "*.partial")); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
}

func TestExportReplacesNoFile(t *testing.T) {
	t.Parallel()
	folder, _, s := exportable(t, 1)
	for _, name := range []string{"all.ndjson", "all.ndjson.partial"} {
		foreign := filepath.Join(folder, name)
		during := func() {}
		if name == "all.ndjson" { // made while the export runs
			during = func() { mustWrite(t, foreign, "foreign") }
		} else {
			mustWrite(t, foreign, "foreign")
		}
		c := eventCommands{&cli{out: io.Discard, errs: io.Discard}}
		err := c.exportFile(t.Context(), watched{s, during}, selection{}, filepath.Join(folder, "all.ndjson"))
		if err == nil || !strings.Contains(err.Error(), "--output: "+foreign+" exists") {
			t.Errorf("%s: %v", name, err)
		}
		if content, err := os.ReadFile(foreign); string(content) != "foreign" {
			t.Errorf("%s has %q, %v", name, content, err)
		}
		if err := os.Remove(foreign); err != nil {
			t.Fatal(err)
		}
	}
}

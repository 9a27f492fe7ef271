package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
)

func TestFileWithSeveralHardLinksIsRefused(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	filled(t, path)
	second := newPath(t)
	noError(t, os.Link(path, second))
	before := contents(t, filepath.Dir(second))
	for _, name := range []string{path, second, linkTo(t, second)} {
		if _, err := Open(testContext(t), name, Options{}); !errors.Is(err, ErrSeveralNames) ||
			!strings.Contains(err.Error(), "it has 2 hard links") {
			t.Errorf("%s: %v", name, err)
		}
	}
	found := must(Diagnose(testContext(t), second, Options{}))(t)
	if len(found) != 1 || found[0].Check != "file" || !strings.Contains(found[0].Problem, "hard links") {
		t.Errorf("findings %+v", found)
	}
	if after := contents(t, filepath.Dir(second)); after != before {
		t.Errorf("the folder has changed: %.200q, was %.200q", after, before)
	}
	store := openStore(t, path, Options{AllowHardLinks: true})
	if n := len(all(t, store.tenant)); n != filledWith {
		t.Errorf("%d events", n)
	}
	store.Close()
	noError(t, os.Remove(second))
	openStore(t, path, Options{})
}

// needMarks skips a test where marks are not supported.
func needMarks(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has locks that mark a file")
	}
}

func TestFileIsNotOpenedByTwoNamesAtOnce(t *testing.T) {
	t.Parallel()
	needMarks(t)
	for name, as := range map[string]func(path, second string) error{"hard link": os.Link, "renamed": os.Rename} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, second := newStore(t), newPath(t)
			third := openStore(t, store.path, Options{})
			noError(t, as(store.path, second))
			opts := Options{AllowHardLinks: true}
			for _, s := range []*Store{store, third} {
				_, err := Open(testContext(t), second, opts)
				if !errors.Is(err, ErrSeveralNames) || !strings.Contains(err.Error(), "another name") {
					t.Errorf("while a process has the file open: %v", err)
				}
				s.Close()
			}
			if got := names(t, second); !slices.Equal(got, []string{"store.db"}) {
				t.Errorf("files %q beside the second name", got)
			}
			migrated(t, openStore(t, second, opts))
		})
	}
}

// takenAway are ways to take the file of a store away.
var takenAway = map[string]func(path, other string) error{
	"removed":  func(path, _ string) error { return os.Remove(path) },
	"renamed":  os.Rename,
	"restored": func(path, backup string) error { return os.Rename(backup, path) },
}

func TestFileThatIsReplacedTakesNoMoreWrites(t *testing.T) {
	t.Parallel()
	for name, replace := range takenAway {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backup := newPath(t)
			filled(t, backup)
			store := newStore(t)
			session := connect(t, store, newNode("p"))
			mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
			noError(t, replace(store.path, backup))
			ctx := testContext(t)
			_, appendErr := store.Append(ctx, "s", event.Any, someEvents(1)...)
			fresh := must(openReaders(store.writer.at, Options{Readers: 1}))(t)
			defer func() { noError(t, fresh.Close()) }()
			for what, err := range map[string]error{
				"append":      appendErr,
				"connection":  fresh.PingContext(ctx),
				"transaction": store.InTx(ctx, func(context.Context, *sql.Tx) error { return nil }),
				"heartbeat":   session.Heartbeat(ctx, &engine.NodeSummary{}),
				"probe":       store.port().Probe(ctx),
			} {
				if !errors.Is(err, ErrReplaced) || !strings.Contains(err.Error(), store.path) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if class := classify(appendErr).Class; class != faults.Configuration {
				t.Errorf("the class of %v is %v", appendErr, class)
			}
		})
	}
}

func TestFileWhoseLogIsRemovedTakesNoMoreWrites(t *testing.T) {
	t.Parallel()
	for _, suffix := range logSuffixes {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			mustAppend(t, store.tenant, "s", event.Any, someEvents(3)...)
			noError(t, os.Remove(store.path+suffix))
			_, err := store.Append(testContext(t), "s", event.Any, someEvents(1)...)
			if !errors.Is(err, ErrReplaced) || !strings.Contains(err.Error(), store.path+suffix) {
				t.Errorf("append: %v", err)
			}
			if suffix == "-wal" { // the index says that there is a log
				if _, err := Open(testContext(t), store.path, Options{}); !errors.Is(err, ErrReplaced) {
					t.Errorf("open: %v", err)
				}
				if found := must(Diagnose(testContext(t), store.path, Options{}))(t); len(found) != 1 ||
					!strings.Contains(found[0].Advice, "end all processes") {
					t.Errorf("found %+v", found)
				}
			}
			// SQLite still has the removed log open, and moves it into the file.
			store.Close()
			if n := len(all(t, openStore(t, store.path, Options{}).tenant)); n != 3 {
				t.Errorf("%d events, want 3", n)
			}
		})
	}
}

// Another process has made a new index, since the index of this process was removed, and may have written to the log.
func TestLogThatAnotherProcessIndexedIsNotMovedIntoTheFile(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(3)...)
	noError(t, errors.Join(os.Remove(store.path+"-shm"), os.WriteFile(store.path+"-shm", nil, 0o600)))
	content := must(os.ReadFile(store.path))(t)
	store.writer.logLimit = -1 // each transaction ends with an attempt to empty the log
	if _, err := store.Append(testContext(t), "s", event.Any, someEvents(1)...); !errors.Is(err, ErrReplaced) {
		t.Errorf("append: %v", err)
	}
	store.Close()
	if got := must(os.ReadFile(store.path))(t); !slices.Equal(got, content) {
		t.Error("the append or Close has written to the file")
	}
	if _, err := Open(testContext(t), store.path, Options{}); !errors.Is(err, ErrReplaced) {
		t.Errorf("open again in this process: %v", err)
	}
	next := newPath(t)
	for _, suffix := range []string{"", "-wal"} {
		noError(t, os.WriteFile(next+suffix, must(os.ReadFile(store.path+suffix))(t), 0o600))
	}
	if n := len(all(t, openStore(t, next, Options{}).tenant)); n != 3 {
		t.Errorf("%d events, want 3", n)
	}
}

// A backup takes the place of a file while a process has it open. The log beside the file is still that of the process.
func TestBackupIsNotOpenedWithTheLogOfTheFileBefore(t *testing.T) {
	t.Parallel()
	needMarks(t)
	backup := newPath(t)
	filled(t, backup)
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	content := must(os.ReadFile(backup))(t)
	noError(t, os.Rename(backup, store.path))
	if _, err := Open(testContext(t), store.path, Options{}); !errors.Is(err, ErrReplaced) ||
		!strings.Contains(err.Error(), "previous file") {
		t.Errorf("error %v", err)
	}
	if got := must(os.ReadFile(store.path))(t); !slices.Equal(got, content) {
		t.Error("the backup was changed")
	}
}

// childReopens appends while another store of this process opens and closes the same file. The process has the locks of
// POSIX, so closing any handle of the file except by SQLite would release them. It prints how many events a fresh
// process sees.
func childReopens(path string) error {
	ctx := context.Background()
	var n int
	if err := visited(filepath.Join(filepath.Dir(path), "other.db"), "select count(*) from sqlite_schema",
		&n); err != nil {
		return err
	}
	store, err := Open(ctx, path, Options{})
	if err != nil {
		return err
	}
	err = errors.Join(store.Migrate(ctx), store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "create table visits (n int)")
		return err
	}))
	for range 2 {
		for range 100 {
			_, appendErr := store.Append(ctx, "s", event.Any, event.Event{Type: "T"})
			err = errors.Join(err, appendErr)
		}
		other, openErr := Open(ctx, path, Options{})
		err = errors.Join(err, openErr)
		if err != nil {
			return err
		}
		err = other.port().Probe(ctx)
		other.Close()
		_, diagnoseErr := Diagnose(ctx, path, Options{})
		err = errors.Join(err, diagnoseErr, visit(ctx, path))
		if err != nil {
			return err
		}
	}
	out, err := child(ctx, "count", path).Output()
	fmt.Print(string(out))
	return err
}

func TestStoreThatIsClosedReleasesNoLocksOfAnother(t *testing.T) {
	t.Parallel()
	if !slices.ContainsFunc(visitors, installed) {
		t.Skip("neither sqlite3 nor python3 is installed")
	}
	out, err := child(testContext(t), "reopen", newPath(t)).Output()
	if err != nil || string(out) != "200" {
		t.Errorf("%s events of 200, %v", out, err)
	}
}

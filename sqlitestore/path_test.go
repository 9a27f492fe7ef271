package sqlitestore

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/event"
)

// linkTo makes a symbolic link in a folder of its own.
func linkTo(t *testing.T, target string) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "link.db")
	noError(t, os.Symlink(target, link))
	return link
}

// names returns the sorted names of the files in the folder of a file.
func names(t *testing.T, path string) (list []string) {
	t.Helper()
	for _, entry := range must(os.ReadDir(filepath.Dir(path)))(t) {
		list = append(list, entry.Name())
	}
	return list
}

func TestPathIsResolvedAsTheSystemDoes(t *testing.T) {
	folder := must(filepath.EvalSymlinks(t.TempDir()))(t)
	at := func(parts ...string) string { return folder + "/" + strings.Join(parts, "/") }
	for _, name := range []string{"real/deep", "work"} {
		noError(t, os.MkdirAll(at(name), 0o700))
	}
	for link, target := range map[string]string{
		"folder": "real/deep", "chain": "folder", "dangling.db": "real/new.db", "twice.db": at("dangling.db"),
		"work/up.db": "../real/new.db",
		"loop.db":    "loop.db", "lost.db": "missing/new.db",
	} {
		noError(t, os.Symlink(target, at(link)))
	}
	noError(t, os.WriteFile(at("real/there.db"), nil, 0o600))
	t.Chdir(at("work"))
	for path, want := range map[string]string{
		at("real/there.db"): "real/there.db", at("real/new.db"): "real/new.db", at("chain/new.db"): "real/deep/new.db",
		at("folder/../there.db"): "real/there.db", at("folder/../new.db"): "real/new.db",
		at("dangling.db"): "real/new.db",
		at("twice.db"):    "real/new.db", "up.db": "real/new.db", "new.db": "work/new.db",
		"../folder/../new.db": "real/new.db",
	} {
		if got, err := resolvePath(path); err != nil || got != at(want) {
			t.Errorf("%s: %s, %v, want %s", path, got, err, want)
		}
	}
	for path, says := range map[string]string{
		at("loop.db"): "too many", at("lost.db"): "the file's folder", at("missing/new.db"): "the file's folder",
		at("real/there.db/new.db"): "not a directory",
	} {
		if got, err := resolvePath(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %s, error %v, want one with %q", path, got, err, says)
		}
	}
}

func TestLinkThatDoesNotShowItsFileIsRefused(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("other systems have no such links")
	}
	path := newPath(t)
	file := must(os.Create(path))(t)
	defer func() { _ = file.Close() }()
	shown := fmt.Sprint("/proc/self/fd/", file.Fd())
	if got, err := resolvePath(shown); err != nil || got != path {
		t.Errorf("%s, %v, want %s", got, err, path)
	}
	noError(t, os.Remove(path))
	if _, err := Open(testContext(t), shown, Options{}); err == nil ||
		!strings.Contains(err.Error(), "use the path of the file itself") {
		t.Errorf("error %v", err)
	}
	if left := names(t, path); len(left) != 0 {
		t.Errorf("files %q were created", left)
	}
}

// A checkpoint was interrupted after the first page, so the file is whole only together with its log.
func TestLinkLeadsToTheLogOfItsFile(t *testing.T) {
	t.Parallel()
	from, path := newPath(t), newPath(t)
	store := migrated(t, openStore(t, from, Options{}))
	mustAppend(t, store.tenant, "s", event.Any, someEvents(filledWith)...)
	noError(t, os.WriteFile(path+"-wal", must(os.ReadFile(from+"-wal"))(t), 0o600))
	store.Close()
	noError(t, os.WriteFile(path, must(os.ReadFile(from))(t)[:4096], 0o600))
	link := linkTo(t, path)
	store = openStore(t, link, Options{})
	if n := len(all(t, store.tenant)); n != filledWith {
		t.Errorf("%d events", n)
	}
	if got := names(t, link); !slices.Equal(got, []string{"link.db"}) {
		t.Errorf("files %q beside the link", got)
	}
}

func TestLinkToAnEmptyFileKeepsItsLog(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	noError(t, errors.Join(os.WriteFile(path, nil, 0o600), os.WriteFile(path+"-wal", []byte("events"), 0o600)))
	if _, err := Open(testContext(t), linkTo(t, path), Options{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("error %v", err)
	}
	if log, err := os.ReadFile(path + "-wal"); err != nil || string(log) != "events" {
		t.Errorf("the log is %q, %v", log, err)
	}
}

func TestLinkToAMissingFileCreatesIt(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	link := linkTo(t, path)
	store := migrated(t, openStore(t, link, Options{}))
	mustAppend(t, store.tenant, "s", event.Any, someEvents(3)...)
	if got := names(t, link); !slices.Equal(got, []string{"link.db"}) || store.path != path {
		t.Errorf("files %q beside the link, path %s", got, store.path)
	}
	if n := len(all(t, openStore(t, path, Options{}).tenant)); n != 3 {
		t.Errorf("%d events", n)
	}
}

// Processes open the file by its own name and by a link in turn, and are killed.
func TestKilledProcessOfALinkLosesNoAnsweredAppend(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	link := linkTo(t, path)
	migrated(t, openStore(t, link, Options{})).Close()
	const kills, appends = 6, 100
	answered := 0
	for kill := range kills {
		cmd := child(testContext(t), "append", []string{path, link}[kill%2])
		out := must(cmd.StdoutPipe())(t)
		noError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == appends {
				noError(t, cmd.Process.Kill())
			}
			answered++
		}
		if err := cmd.Wait(); err == nil || answered < (kill+1)*appends {
			t.Fatalf("the process was not killed: %v, %d answers", err, answered)
		}
		store, err := Open(testContext(t), []string{link, path}[kill%2], Options{})
		if err != nil {
			t.Fatalf("after kill %d: %v", kill+1, err)
		}
		// The last line may be cut off.
		if n := len(all(t, store.tenant)); n < answered-1 {
			t.Errorf("%d events after %d answers", n, answered)
		}
		store.Close()
	}
}

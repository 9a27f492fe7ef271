package ownerlock

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/sqlitestore/internal/filelock"
)

func mustInspect(t *testing.T, path string) State {
	t.Helper()
	state, err := Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestInspectSeesWhetherTheLockIsHeld(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	if state := mustInspect(t, path); state != (State{}) {
		t.Errorf("without a lock file: %+v", state)
	}
	lock, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if state := mustInspect(t, path); !state.Held || time.Since(state.Beat) > time.Minute {
		t.Errorf("while the lock is held: %+v", state)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if state := mustInspect(t, path); state.Held || state.Beat.IsZero() {
		t.Errorf("after the release: %+v", state)
	}
}

func TestTwoThatInspectDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	file, err := os.Create(Name(path))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err := filelock.Share(file); err != nil {
		t.Fatal(err)
	}
	if state := mustInspect(t, path); state.Held {
		t.Error("another inspection is taken for an owner")
	}
}

func TestBeatsAreSeldomWrittenAndSeenByOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	lock, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Release() }()
	long := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(Name(path), long, long); err != nil {
		t.Fatal(err)
	}
	if err := lock.Beat(); err != nil {
		t.Fatal(err)
	}
	if state := mustInspect(t, path); !state.Beat.Equal(long) {
		t.Errorf("a beat soon after the last one was written: %v", state.Beat)
	}
	lock.beat = long
	if err := lock.Beat(); err != nil {
		t.Fatal(err)
	}
	if state := mustInspect(t, path); time.Since(state.Beat) > 30*time.Minute {
		t.Errorf("the beat was not written: %v", state.Beat)
	}
}

func TestBeatNoticesThatTheLockFileWasRemoved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	lock, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Release() }()
	if err := os.Remove(Name(path)); err != nil {
		t.Fatal(err)
	}
	if err := lock.Beat(); err == nil || !strings.Contains(err.Error(), "was removed") {
		t.Errorf("error %v", err)
	}
}

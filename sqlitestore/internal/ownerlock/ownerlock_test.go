package ownerlock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childEnv names the file whose lock a child process holds until it is killed.
const childEnv = "MILLRACE_OWNERLOCK_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		lock, err := Acquire(path)
		fmt.Println("locked", err)
		<-time.After(time.Hour)
		_ = lock.Release()
	}
	goleak.VerifyTestMain(m)
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestOneOwnerAtATime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	var owners, turns atomic.Int64
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			for range 5 {
				lock, err := Acquire(path)
				for errors.Is(err, ErrOwned) {
					runtime.Gosched()
					lock, err = Acquire(path)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if n := owners.Add(1); n != 1 {
					t.Errorf("%d owners", n)
				}
				turns.Add(1)
				owners.Add(-1)
				if err := lock.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := turns.Load(); n != 30 {
		t.Errorf("%d turns", n)
	}
}

func TestKilledOwnerIsFollowed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	cmd := exec.CommandContext(testContext(t), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "locked <nil>\n" {
		t.Fatalf("the process says %q", line)
	}
	_, err = Acquire(path)
	if want := fmt.Sprintf("(process %d)", cmd.Process.Pid); !errors.Is(err, ErrOwned) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one with %q", err, want)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process was not killed")
	}
	lock, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

func TestFileThatWasRemovedIsNotTheLock(t *testing.T) {
	t.Parallel()
	name := Name(filepath.Join(t.TempDir(), "store.db"))
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err := inPlace(file, name); err != nil {
		t.Errorf("the file is there: %v", err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := inPlace(file, name); !errors.Is(err, errReplaced) {
		t.Errorf("the file is gone: %v", err)
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := inPlace(file, name); !errors.Is(err, errReplaced) {
		t.Errorf("another file has its name: %v", err)
	}
}

func TestFolderThatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "missing", "store.db")
	if _, err := Acquire(path); err == nil || !strings.Contains(err.Error(), Name(path)) {
		t.Errorf("error %v", err)
	}
}

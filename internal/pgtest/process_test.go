package pgtest_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/pgtest"
)

// ownerMode is the environment variable that makes the test binary run another program. With "owner" the program starts
// a server, prints its DSN and waits. With "goroutine" or "server" it ends and leaves a goroutine or a server behind.
const ownerMode = "MILLRACE_PGTEST_OWNER"

type owner string

func (o owner) Run() int {
	if o == "goroutine" {
		go func() { select {} }()
		return 0
	}
	s, err := pgtest.Start(context.Background(), pgtest.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(s.TCPDSN("postgres"))
	if o == "owner" {
		_, _ = os.Stdin.Read(make([]byte, 1))
	}
	return 0
}

// until polls a condition. Only a hang makes it fail.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within a minute: %s", what)
		case <-ticker.C:
		}
	}
}

// startOwner starts a program that owns a server, and returns the server's DSN and folder. Servers of other tests do
// not sweep base, the program's temporary folder.
func startOwner(t *testing.T, base string) (cmd *exec.Cmd, dsn, dir string) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), ownerMode+"=owner", "TMPDIR="+base)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	try(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dsn = strings.TrimSpace(line)
	return cmd, dsn, strings.TrimSuffix(ask(t, dsn, "show data_directory"), "/data")
}

func shortTempDir(t *testing.T) string {
	t.Helper()
	base, err := os.MkdirTemp("/tmp", "mr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	try(t, os.Chmod(base, 0o755))
	return base
}

func TestServerEndsWhenItsOwnerIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux notifies a process of the death of its parent")
	}
	base := shortTempDir(t)
	cmd, _, dir := startOwner(t, base)
	if len(pgtest.ProcessesIn(dir+"/data")) == 0 {
		t.Fatal("no process was found while the server runs")
	}
	try(t, cmd.Process.Kill())
	_ = cmd.Wait()
	until(t, "no process of the server is left", func() bool { return len(pgtest.ProcessesIn(dir+"/data")) == 0 })

	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("the folder was removed without a sweep: %v", err)
	}
	t.Setenv("TMPDIR", base)
	pgtest.Private(t, pgtest.Options{})
	gone(t, dir)
}

// onEndingThread runs fn in a goroutine whose thread ends with it. The first thread of a process never ends, so it is
// blocked while fn runs on another.
func onEndingThread(fn func()) {
	go func() {
		runtime.LockOSThread() // and not unlocked, so the thread ends with the goroutine
		if thread, _ := os.Readlink("/proc/thread-self"); filepath.Base(thread) != strconv.Itoa(os.Getpid()) {
			fn()
			return
		}
		defer runtime.UnlockOSThread()
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			fn()
		}()
		<-done
	}()
}

func TestServerOutlivesTheThreadThatStartedIt(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux binds a process to the thread that started it")
	}
	t.Parallel()
	started := make(chan *pgtest.Server)
	thread := ""
	onEndingThread(func() {
		defer close(started)
		thread, _ = os.Readlink("/proc/thread-self")
		s, err := pgtest.Start(context.Background(), pgtest.Options{})
		if err != nil {
			t.Error(err)
			return
		}
		started <- s
	})
	s, ok := <-started
	if !ok {
		t.FailNow()
	}
	stopAtEnd(t, s)
	until(t, "the thread has ended", func() bool {
		_, err := os.Stat("/proc/" + thread)
		return err != nil
	})
	if got := ask(t, s.DSN("postgres"), "select pg_sleep(0.3)", "select 1"); got != "1" {
		t.Errorf("got %s", got)
	}
}

func TestSignalsToTestsStopTheirServers(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			cmd, _, dir := startOwner(t, shortTempDir(t))
			try(t, cmd.Process.Signal(sig))
			if err := cmd.Wait(); err == nil {
				t.Error("the interrupted program reported success")
			}
			gone(t, dir)
			if left := pgtest.ProcessesIn(dir + "/data"); len(left) != 0 {
				t.Errorf("processes %v are left", left)
			}
		})
	}
}

func TestSweepSparesServersInUse(t *testing.T) {
	base := shortTempDir(t)
	_, dsn, dir := startOwner(t, base)
	t.Setenv("TMPDIR", base)
	pgtest.Private(t, pgtest.Options{})
	if _, err := os.Stat(dir + "/data/postgresql.conf"); err != nil {
		t.Errorf("another process's server lost its folder: %v", err)
	}
	if got := ask(t, dsn, "select pg_sleep(0.3)", "select 1"); got != "1" {
		t.Errorf("got %s from another process's server", got)
	}
}

func TestMainFailsOnLeakedGoroutinesAndStopsServers(t *testing.T) {
	for mode, fails := range map[string]bool{"goroutine": true, "server": false} {
		base := shortTempDir(t)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), ownerMode+"="+mode, "TMPDIR="+base)
		out, err := cmd.CombinedOutput()
		if (err != nil) != fails || fails != strings.Contains(string(out), "goroutines are left") {
			t.Errorf("%s: %v: %s", mode, err, out)
		}
		if left, err := os.ReadDir(base); err != nil || len(left) != 0 {
			t.Errorf("%s: left in %s: %v, %v", mode, base, left, err)
		}
	}
}

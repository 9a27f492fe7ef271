package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/pgtest/testmain"
)

const (
	// asDemo makes a process of the test binary the demo itself.
	asDemo = "MILLRACE_TEST_AS_DEMO"
	// patient is so long that only what hangs exceeds it.
	patient = 2 * time.Minute
)

func TestMain(m *testing.M) {
	if os.Getenv(asDemo) != "" {
		main()
	}
	testmain.Run(m)
}

// process is a demo that runs apart from the test.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}

	mu   sync.Mutex
	said bytes.Buffer
}

// start starts a demo. It is killed at the end of the test, if it has not ended.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asDemo+"=yes", "DATABASE_URL=")
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the state holds the failure
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("demo %q said\n%s", args, p.output())
		}
	})
	return p
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// says waits until the process has printed what matches, and returns its first group, or all of it.
func (p *process) says(pattern string) string {
	p.t.Helper()
	expression := regexp.MustCompile(pattern)
	var match []string
	eventually(p.t, "the process says "+pattern, func() bool {
		ended := p.hasEnded()
		match = expression.FindStringSubmatch(p.output())
		if match == nil && ended {
			p.t.Fatalf("the process ended, and did not say %s", pattern)
		}
		return match != nil
	})
	return match[len(match)-1]
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// ends waits until the process has ended, and fails the test if its exit status is another.
func (p *process) ends(status int) {
	p.t.Helper()
	eventually(p.t, "the process ends", p.hasEnded)
	if got := p.cmd.ProcessState.ExitCode(); got != status {
		p.t.Errorf("demo %q: exit status %d, want %d", p.cmd.Args[1:], got, status)
	}
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(patient)
	defer deadline.Stop()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !is() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("after %v it is still not so that %s", patient, what)
		}
	}
}

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
	// asDemo makes the test binary the demo.
	asDemo = "MILLRACE_TEST_AS_DEMO"
	// patient is a limit that only a hang exceeds.
	patient = 10 * time.Minute
)

func TestMain(m *testing.M) {
	if os.Getenv(asDemo) != "" {
		main()
	}
	testmain.Run(tests{m})
}

// tests are the tests of the package.
type tests struct{ *testing.M }

// Run runs the tests, and removes the program that they have built.
func (t tests) Run() int {
	defer func() { _ = os.RemoveAll(aloneFolder) }()
	return t.M.Run()
}

// process is a demo in a process of its own.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}

	mu      sync.Mutex
	printed bytes.Buffer
}

// start starts a demo, and kills it at the end of the test.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startProgram(t, program, append(os.Environ(), asDemo+"=yes", "DATABASE_URL="), args...)
}

// startProgram starts a program with an environment, and kills it at the end of the test.
func startProgram(t *testing.T, program string, environment []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.cmd.Env = environment
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // its state has the failure
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("demo %q printed\n%s", args, p.output())
		}
	})
	return p
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.printed.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.printed.String()
}

// awaitOutput waits until the output matches, and returns the first group of the match, or all of it.
func (p *process) awaitOutput(pattern string) string {
	p.t.Helper()
	expression := regexp.MustCompile(pattern)
	var match []string
	eventually(p.t, "the process prints "+pattern, func() bool {
		ended := p.hasEnded()
		match = expression.FindStringSubmatch(p.output())
		if match == nil && ended {
			p.t.Fatalf("the process ended without printing %s", pattern)
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

// awaitExit waits until the process has ended, and checks its exit status.
func (p *process) awaitExit(status int) {
	p.t.Helper()
	eventually(p.t, "the process ends", p.hasEnded)
	if got := p.cmd.ProcessState.ExitCode(); got != status {
		p.t.Errorf("demo %q: exit status %d, want %d", p.cmd.Args[1:], got, status)
	}
}

// eventually polls a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patient)
	defer deadline.Stop()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", patient, what)
		}
	}
}

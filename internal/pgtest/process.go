package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// stragglerGrace is how long the processes of a killed server get to notice by themselves. One that computes without
// ever waiting does not notice at all and is killed then.
const stragglerGrace = 5 * time.Second

// process is one run of a server: the postmaster and everything it forked.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the postmaster has ended
	gone   chan struct{} // closed when none of its processes is left either
}

// spawn starts the postmaster. Two things of the kernel's do the book-keeping:
//
// All processes of the server inherit the write end of a pipe and nobody else holds it, so its end of file means that
// the last of them is gone, whoever their parent is by then.
//
// The signal at the parent's death is bound to the thread that forked, not to the process. So a goroutine keeps that
// thread until the postmaster has ended; otherwise the server would die with whatever goroutine ends the thread.
func spawn(cmd *exec.Cmd) (*process, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe for %s: %w", cmd.Path, err)
	}
	cmd.ExtraFiles = []*os.File{write}
	p := &process{cmd: cmd, exited: make(chan struct{}), gone: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer read.Close()
		err := cmd.Start()
		write.Close()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // how it ended stands in its log
		close(p.exited)
		_, _ = read.Read(make([]byte, 1))
		close(p.gone)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// end sends a signal and reports whether all processes were gone within the limit, or before abandon was closed.
func (p *process) end(sig os.Signal, limit time.Duration, abandon <-chan struct{}) bool {
	_ = p.cmd.Process.Signal(sig) // fails only where it has ended already
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.gone:
		return true
	case <-abandon:
	case <-timer.C:
	}
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// kill ends the postmaster without a chance to clean up and returns when all of its processes are gone, for a server
// refuses to start while any of them is attached to its shared memory.
func (p *process) kill(data string) error {
	if p.end(os.Kill, stragglerGrace, nil) {
		return nil
	}
	for _, pid := range processesIn(data) {
		if straggler, err := os.FindProcess(pid); err == nil {
			_ = straggler.Kill()
		}
	}
	if p.end(os.Kill, stragglerGrace, nil) {
		return nil
	}
	return fmt.Errorf("kill PostgreSQL %d: some of its processes are still there", p.cmd.Process.Pid)
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

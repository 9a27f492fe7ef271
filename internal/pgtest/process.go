package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// stragglerGrace is how long the processes of a killed server have to notice it and end. A process that only computes
// never notices, and is killed then.
const stragglerGrace = 5 * time.Second

// process is one run of a server: the postmaster and everything it forked.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the postmaster has ended
	gone   chan struct{} // closed when none of its processes is left either
}

// spawn starts the postmaster. It relies on two properties of the kernel:
//
// All processes of the server, and no others, inherit the write end of a pipe. The end of the file therefore means that
// the last of them has ended, whatever its parent is by then.
//
// The signal at the parent's death is bound to the thread that forked, not to the process. A goroutine therefore keeps
// that thread until the postmaster has ended.
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
		_ = cmd.Wait() // its log has the reason
		close(p.exited)
		_, _ = read.Read(make([]byte, 1))
		close(p.gone)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// end sends a signal and reports whether all processes ended within the limit and before abandon was closed.
func (p *process) end(sig os.Signal, limit time.Duration, abandon <-chan struct{}) bool {
	_ = p.cmd.Process.Signal(sig) // it fails only if the process has ended
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

// kill kills the postmaster and returns when all its processes have ended. A server refuses to start while one of them
// is attached to its shared memory.
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
	return fmt.Errorf("kill PostgreSQL %d: some of its processes still run", p.cmd.Process.Pid)
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// restartAfter is how long a process manager waits before it replaces a process that ended.
const restartAfter = 300 * time.Millisecond

// node is a member of the fleet, with a name, a network of its own, and one process after another.
type node struct {
	name       string
	dsn        string
	sessionDSN string // of its session connection, where its pool is behind poolers
	times      times
	proxy      *proxy
	pool       []*link // the links of its pool, in the order of the servers
	log        string  // the file that all its processes log to

	mu        sync.Mutex
	wanted    bool
	away      time.Duration // replaces restartAfter for the next restart, if it is longer
	processes []*process
	unmanaged chan struct{} // closed when no process follows any more
}

// start keeps a process running until stop or halt.
func (n *node) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wanted {
		return
	}
	n.wanted, n.unmanaged = true, make(chan struct{})
	go n.manage(n.unmanaged)
}

// manage is the process manager: it replaces each process that ends.
func (n *node) manage(unmanaged chan struct{}) {
	defer close(unmanaged)
	// The signal at the parent's death is bound to the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for n.isWanted() {
		p, err := n.launch()
		if err != nil {
			fmt.Fprintf(os.Stderr, "node %s: %v\n", n.name, err)
		} else {
			<-p.done
		}
		n.mu.Lock()
		away := max(restartAfter, n.away)
		n.away = 0
		n.mu.Unlock()
		_ = until(context.Background(), away, "", func() bool { return !n.isWanted() })
	}
}

func (n *node) isWanted() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wanted
}

// launch starts one process.
func (n *node) launch() (*process, error) {
	spec, err := json.Marshal(nodeSpec{Name: n.name, DSN: n.dsn, SessionDSN: n.sessionDSN, Times: n.times})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), nodeVariable+"="+string(spec))
	cmd.SysProcAttr, cmd.Dir = endWithParent(), filepath.Dir(n.log)
	p, err := startProcess(n, cmd)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.processes = append(n.processes, p)
	return p, nil
}

// current returns the node's process; nil where none runs.
func (n *node) current() *process {
	all := n.allProcesses()
	if len(all) == 0 || !all[len(all)-1].alive() {
		return nil
	}
	return all[len(all)-1]
}

func (n *node) allProcesses() []*process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.processes)
}

// stayAway delays the next restart.
func (n *node) stayAway(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.away = d
}

// end lets end stop the current process, if there is one, and returns when the process manager has stopped, too.
func (n *node) end(end func(p *process)) {
	n.mu.Lock()
	n.wanted = false
	unmanaged := n.unmanaged
	n.mu.Unlock()
	if unmanaged == nil {
		return
	}
	if p := n.current(); p != nil {
		end(p)
	}
	<-unmanaged
}

// halt kills the node for good.
func (n *node) halt() {
	n.end(func(p *process) { p.signal(syscall.SIGKILL) })
}

// stop ends the node in order. It fails if its process does not end by itself.
func (n *node) stop() (err error) {
	n.end(func(p *process) {
		_ = p.order(orderStop) // it fails if the process has just ended
		err = p.awaitEnd(context.Background(), 20*time.Second)
		if err != nil {
			p.signal(syscall.SIGQUIT) // its goroutines go into its log
			<-p.done
			return
		}
		byFault := []string{inOrder, "signal: killed", fmt.Sprintf("exit status %d", deadlyExit)}
		if _, exit := p.end(); !slices.Contains(byFault, exit) {
			err = fmt.Errorf("node %s was stopped and ended with %s", p, exit)
		}
	})
	return err
}

package chaos_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// restartAfter is how long a process is away that ended by itself or was killed, as with a process manager.
const restartAfter = 300 * time.Millisecond

// node is a place in the fleet, with a name, a network of its own, and one process after another.
type node struct {
	name string
	dsn  string
	// sessionDSN is that of its session connection, where its pool is behind poolers.
	sessionDSN string
	times      times
	proxy      *proxy
	pool       []*link // those that its pool uses, in the order of the servers
	log        string  // the file that all its processes log to

	mu     sync.Mutex
	wanted bool
	away   time.Duration // how long the next process is waited for, in place of restartAfter
	lives  []*life
	kept   chan struct{} // closed when no process follows any more
}

// life is one process of a node.
type life struct {
	node    *node
	pid     int
	process *os.Process
	orders  io.WriteCloser
	started time.Time
	done    chan struct{} // closed when it has ended

	mu    sync.Mutex
	id    string // of the node as the library has it; empty until it is told
	told  []string
	ended time.Time
	exit  string
}

// start begins to keep a process running, until stop or halt.
func (n *node) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wanted {
		return
	}
	n.wanted, n.kept = true, make(chan struct{})
	go n.keep(n.kept)
}

// keep is the process manager.
func (n *node) keep(kept chan struct{}) {
	defer close(kept)
	// The signal at the parent's death is bound to the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for n.isWanted() {
		l, err := n.launch()
		if err != nil {
			fmt.Fprintf(os.Stderr, "node %s: %v\n", n.name, err)
		} else {
			<-l.done
		}
		n.mu.Lock()
		away := max(restartAfter, n.away)
		n.away = 0
		n.mu.Unlock()
		for end := time.Now().Add(away); n.isWanted() && time.Now().Before(end); {
			pass(context.Background(), 10*time.Millisecond)
		}
	}
}

func (n *node) isWanted() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wanted
}

// launch starts one process.
func (n *node) launch() (*life, error) {
	spec, err := json.Marshal(nodeSpec{Name: n.name, DSN: n.dsn, SessionDSN: n.sessionDSN, Times: n.times})
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), nodeVariable+"="+string(spec))
	cmd.Stderr, cmd.SysProcAttr, cmd.Dir = log, endWithParent(), filepath.Dir(n.log)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	l := &life{node: n, pid: cmd.Process.Pid, process: cmd.Process, orders: in, started: time.Now(), done: make(chan struct{})}
	n.mu.Lock()
	n.lives = append(n.lives, l)
	n.mu.Unlock()
	go func() {
		defer close(l.done)
		l.listen(out)
		err := cmd.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ended, l.exit = time.Now(), fmt.Sprint(err)
	}()
	return l, nil
}

// listen takes in what a process tells.
func (l *life) listen(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		l.mu.Lock()
		if id, ok := strings.CutPrefix(lines.Text(), "node "); ok {
			l.id = id
		}
		l.told = append(l.told, lines.Text())
		l.mu.Unlock()
	}
}

// current is the node's process; nil where it has none at present.
func (n *node) current() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.lives) == 0 || !n.lives[len(n.lives)-1].alive() {
		return nil
	}
	return n.lives[len(n.lives)-1]
}

func (n *node) allLives() []*life {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lives)
}

// stayAway lets the next process wait.
func (n *node) stayAway(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.away = d
}

// stop ends the node in order. Its process must end by itself.
func (n *node) stop() error {
	n.mu.Lock()
	n.wanted = false
	kept := n.kept
	n.mu.Unlock()
	if kept == nil {
		return nil
	}
	defer func() { <-kept }()
	l := n.current()
	if l == nil {
		return nil
	}
	_ = l.order(orderStop) // it fails where the process has just ended
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
		l.signal(syscall.SIGQUIT) // its goroutines go into its log
		<-l.done
		return fmt.Errorf("node %s did not stop within 20 s of being told", l)
	}
	byFault := []string{"<nil>", "signal: killed", fmt.Sprintf("exit status %d", deadlyExit)}
	if exit := l.exited(); !slices.Contains(byFault, exit) {
		return fmt.Errorf("node %s was stopped and ended with %s", l, exit)
	}
	return nil
}

// halt kills the node for good.
func (n *node) halt() {
	n.mu.Lock()
	n.wanted = false
	kept := n.kept
	n.mu.Unlock()
	if kept == nil {
		return
	}
	if l := n.current(); l != nil {
		l.signal(syscall.SIGKILL)
	}
	<-kept
}

func (l *life) String() string { return fmt.Sprintf("%s/%d", l.node.name, l.pid) }

// order tells the process to do something.
func (l *life) order(order string) error {
	if _, err := io.WriteString(l.orders, order+"\n"); err != nil {
		return fmt.Errorf("order %s to %s: %w", l, order, err)
	}
	return nil
}

func (l *life) signal(sig syscall.Signal) { _ = l.process.Signal(sig) }

func (l *life) alive() bool {
	select {
	case <-l.done:
		return false
	default:
		return true
	}
}

// identity is the node's id as the library has it, empty while it is not known.
func (l *life) identity() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id
}

func (l *life) exited() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.exit
}

func (l *life) endedAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// tells counts the lines that begin so among those that the process has told.
func (l *life) tells(prefix string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.told {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// awaitEnd waits until the process has ended.
func (l *life) awaitEnd(ctx context.Context, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-l.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("node %s lives on after %v", l, limit)
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("wait for the end of %s", l), ctx.Err())
	}
}

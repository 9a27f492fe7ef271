package chaos_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// inOrder is how a process ends that stops with status 0.
const inOrder = "in order"

// process is one process of a node, as the test sees it.
type process struct {
	node    *node
	pid     int
	handle  *os.Process
	orders  io.WriteCloser // its standard input
	started time.Time
	done    chan struct{} // closed when it has ended

	mu      sync.Mutex
	id      string   // the library's id of the node; empty until it has logged it
	reports []string // the lines of its standard output
	ended   time.Time
	exit    string
}

// idPattern matches the line with which the library logs the id of the node.
var idPattern = regexp.MustCompile(`runtime started\t\{"node": "([^"]+)"`)

// startProcess starts a command and reads its reports and its log.
func startProcess(n *node, cmd *exec.Cmd) (*process, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	p := &process{
		node: n, pid: cmd.Process.Pid, handle: cmd.Process, orders: in, started: time.Now(), done: make(chan struct{}),
	}
	go func() {
		defer close(p.done)
		var reads sync.WaitGroup
		reads.Go(func() { p.readReports(out) })
		reads.Go(func() { p.copyLog(log, stderr) })
		reads.Wait()
		err := cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended, p.exit = time.Now(), inOrder
		if err != nil {
			p.exit = err.Error()
		}
	}()
	return p, nil
}

func (p *process) readReports(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.mu.Lock()
		p.reports = append(p.reports, lines.Text())
		p.mu.Unlock()
	}
}

// copyLog writes the log to its file and finds the node's id in it.
func (p *process) copyLog(to *os.File, from io.Reader) {
	defer to.Close()
	for lines := bufio.NewReader(from); ; {
		line, err := lines.ReadString('\n')
		if match := idPattern.FindStringSubmatch(line); match != nil {
			p.mu.Lock()
			p.id = match[1]
			p.mu.Unlock()
		}
		_, _ = to.WriteString(line)
		if err != nil {
			return
		}
	}
}

func (p *process) String() string { return fmt.Sprintf("%s/%d", p.node.name, p.pid) }

// order sends an order to the process.
func (p *process) order(order string) error {
	if _, err := io.WriteString(p.orders, order+"\n"); err != nil {
		return fmt.Errorf("order %s to %s: %w", order, p, err)
	}
	return nil
}

func (p *process) signal(sig syscall.Signal) { _ = p.handle.Signal(sig) }

func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// identity returns the library's id of the node; empty while it is unknown.
func (p *process) identity() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id
}

// end returns when and how the process ended; zero values while it runs.
func (p *process) end() (at time.Time, exit string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended, p.exit
}

// reported counts the lines with this prefix that the process has reported.
func (p *process) reported(prefix string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.reports {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// awaitReport waits until the process has reported more than before lines with this prefix, or has ended.
func (p *process) awaitReport(ctx context.Context, limit time.Duration, prefix string, before int) error {
	return until(ctx, limit, fmt.Sprintf("%s reports %q", p, prefix),
		func() bool { return p.reported(prefix) > before || !p.alive() })
}

// awaitEnd waits until the process has ended.
func (p *process) awaitEnd(ctx context.Context, limit time.Duration) error {
	return until(ctx, limit, fmt.Sprintf("node %s ends", p), func() bool { return !p.alive() })
}

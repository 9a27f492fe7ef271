package upgrade_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-go/millrace/tests/upgrade/service"
)

// program is the program of one release.
type program struct {
	release string
	path    func() (string, error)
}

var (
	older = program{"old", oldProgram}
	newer = program{"new", os.Executable}
)

// command returns a command that is killed when ctx ends.
func (p program) command(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := p.path()
	must(t, err)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), programVariable+"=1")
	cmd.Stderr = t.Output()
	return cmd
}

// run gives an order, and returns what the program prints.
func (p program) run(t *testing.T, args ...string) []byte {
	t.Helper()
	_, err := p.path() // built without the limit
	must(t, err)
	out, err := p.command(limited(t), t, args...).Output()
	if err != nil {
		t.Fatalf("%s program, %s: %v", p.release, strings.Join(args, " "), err)
	}
	return out
}

// contents returns the contents of a store, as the program sees them.
func (p program) contents(t *testing.T, place string) (contents map[string]*service.Content) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(p.run(t, "contents", place)))
	must(t, decoder.Decode(&contents))
	return contents
}

// acknowledged are the positions that programs got for their appends, by tenant.
type acknowledged struct {
	sync.Mutex
	positions map[string][]int64
}

// node is a process that runs projections and appends.
type node struct {
	name   string
	cmd    *exec.Cmd
	orders io.Closer
	read   chan struct{} // closed when all acknowledgements are read
}

// serve starts a node, which is killed at the end of the test.
func (p program) serve(t *testing.T, acks *acknowledged, name, place string, flags ...string) *node {
	t.Helper()
	cmd := p.command(context.Background(), t, append(append([]string{"-name", name}, flags...), "serve", place)...)
	orders, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	n := &node{name, cmd, orders, make(chan struct{})}
	t.Cleanup(func() { _ = n.kill() })
	go func() {
		defer close(n.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var tenant string
			var position int64
			// the last line of a killed node may be cut
			if _, err := fmt.Sscan(lines.Text(), &tenant, &position); err == nil {
				acks.Lock()
				acks.positions[tenant] = append(acks.positions[tenant], position)
				acks.Unlock()
			}
		}
	}()
	return n
}

// kill ends the process as kill -9 does.
func (n *node) kill() error {
	_ = n.cmd.Process.Kill()
	<-n.read
	return n.cmd.Wait()
}

// stop ends the process in order.
func (n *node) stop(t *testing.T) {
	t.Helper()
	_ = n.orders.Close()
	<-n.read
	if err := n.cmd.Wait(); err != nil {
		t.Errorf("the node %s ended with: %v", n.name, err)
	}
}

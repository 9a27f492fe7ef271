//go:build unix

package sqlitestore

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore/internal/ownerlock"
)

// A process that is frozen may continue at any time, so its lock counts. The summary shows that it is silent.
func TestRuntimeWaitsForAFrozenOwner(t *testing.T) {
	t.Parallel()
	ctx, store := testContext(t), newStore(t)
	cmd, _ := startChild(t, store)
	rt := must(counting(store, "standby", nil))(t)
	started(t, rt)
	noError(t, cmd.Process.Signal(syscall.SIGSTOP))
	long := time.Now().Add(-time.Minute) // as if it had been frozen for so long
	noError(t, os.Chtimes(ownerlock.Name(store.path), long, long))
	last := mustAppend(t, store.tenant, "s", event.Any, someEvents(3)...).Positions[2]
	select {
	case <-ctx.Done():
	case <-time.After(10 * lockInterval):
	}
	nodes := must(rt.Summary(ctx))(t).Nodes
	if len(nodes) != 1 || !nodes[0].Alive || nodes[0].Silent < time.Minute {
		t.Errorf("the nodes are %+v", nodes)
	}
	if by := counts(t, store); by != "child 1" {
		t.Errorf("counted are %s", by)
	}
	noError(t, cmd.Process.Signal(syscall.SIGCONT))
	noError(t, rt.WaitFor(ctx, countedBy, last))
	if by := counts(t, store); by != "child 4" {
		t.Errorf("counted are %s", by)
	}
	if p := must(rt.Status(ctx, admin.StatusFilter{}))(t).Projection(countedBy); p.State != admin.StateLive ||
		p.Epoch != 1 {
		t.Errorf("the status is %+v", p)
	}
}

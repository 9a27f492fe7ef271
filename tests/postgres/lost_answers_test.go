package postgres_test

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// losing is a connection that loses the answers to some commits, although these commits succeed.
type losing struct {
	net.Conn
	lose func() bool
}

func (c *losing) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && bytes.Contains(p[:n], []byte("COMMIT\x00")) && c.lose() {
		_ = c.Close()
		return 0, syscall.ECONNRESET
	}
	return n, err
}

// forgetful is a store that loses the answer to a commit when lose returns true.
func (b *bundle) forgetful(lose func() bool) *pgstore.Store {
	b.T.Helper()
	return b.open(b.dsn, dialing(func(conn net.Conn) net.Conn { return &losing{conn, lose} }),
		pgstore.Options{SessionDSN: b.dsn})
}

// If the answer to a commit is lost, no event is lost, doubled or counted, under any policy.
func TestLostAnswersToCommitsChangeNothingWhateverThePolicy(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	f := kit.NewFates(b.Bundle)
	var commits, lost atomic.Int64
	var off atomic.Bool
	store := b.forgetful(func() bool {
		if off.Load() || commits.Add(1)%3 != 0 {
			return false
		}
		lost.Add(1)
		return true
	})
	projections := make(map[string]kit.Course)
	var all []millrace.Projection
	for policy, c := range kit.Courses() {
		for _, most := range []int{1, 4} {
			p := c.Shape
			p.Name, p.MaxEvents = fmt.Sprint(policy, ", at most ", most), most
			projections[p.Name] = c
			poison := f.Poison
			if !c.Fails() {
				poison = 0
			}
			p.Handler = b.Store.Batch(kit.FailsAt(p.Name, kit.Only(poison), kit.Fails))
			all = append(all, p)
		}
	}
	rt := f.Running(millrace.Config{Store: store}, all...)
	for name, c := range projections {
		f.MustHaveGone(rt, name, c, "on purpose")
	}
	if lost.Load() < 20 {
		t.Errorf("%d answers were lost: the test shows nothing", lost.Load())
	}
	off.Store(true)
}

// A replay moves no checkpoint that would show that it committed.
func TestReplayWhoseCommitIsNotAnsweredAppliesOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	s := kit.NewParking(b.Bundle)
	s.PoisonAt(s.At["a"][2], s.At["b"][5])
	var armed atomic.Bool
	var mu sync.Mutex
	var lost, commits int
	store := b.forgetful(func() bool {
		mu.Lock()
		defer mu.Unlock()
		if !armed.Load() {
			return false
		}
		// Of five commits one: the count of a replay, the replay or a probe, in turn.
		commits++
		if commits%5 == 3 {
			lost++
			return true
		}
		return false
	})
	rt := s.Running(millrace.Config{Store: store}, s.P)
	s.CatchUp(rt)
	s.Mended.Store(true)
	armed.Store(true)
	s.MustReplay(projection.DeadLetterFilter{All: true}, 100, 13, 0)
	armed.Store(false)
	s.More("a", "b", "c")
	s.CatchUp(rt)
	s.MustHaveParked()
	if lost < 4 {
		t.Errorf("%d answers were lost: the test shows nothing", lost)
	}
}

package chaos_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// endings are the ways in which a node disappears, as in the table of docs/ownership.md. limit is the longest median
// time until other nodes own all its leases.
var endings = []struct {
	name   string
	limit  time.Duration
	strike func(n *node) error
	undo   func(n *node) error
}{
	{
		name: "a node stops in order", limit: 200 * time.Millisecond,
		strike: (*node).stop,
		undo:   func(n *node) error { n.start(); return nil },
	},
	{
		name: "a node is killed (SIGKILL)", limit: time.Second,
		strike: func(n *node) error { n.halt(); return nil },
		undo:   func(n *node) error { n.start(); return nil },
	},
	{
		name: "a node is frozen (SIGSTOP)", limit: leaseTime + time.Second,
		strike: func(n *node) error { n.current().signal(syscall.SIGSTOP); return nil },
		undo:   func(n *node) error { n.current().signal(syscall.SIGCONT); return nil },
	},
	{
		name: "a node's network is silent", limit: leaseTime + time.Second,
		strike: func(n *node) error { n.proxy.impair(impairment{silent: true}); return nil },
		undo:   func(n *node) error { return n.proxy.heal() },
	},
}

// TestTakeoverTimes measures three times: from each ending until the last lease of the node has another owner; from
// when a killed server accepts connections again until every projection has applied all events; and from Pause and
// Resume in another process until the lease is free or claimed.
func TestTakeoverTimes(t *testing.T) {
	if *takeovers == 0 {
		t.Skip("needs the flag -takeovers")
	}
	c := setup(t, options{limit: time.Hour, seed: 1, repeat: "make takeover"})
	table := []string{fmt.Sprintf("%-42s %8s %8s %8s %8s", "", "median", "least", "most", "limit")}
	measure := func(name string, limit time.Duration, once func(i int) (time.Duration, error)) {
		var took []time.Duration
		for i := range *takeovers {
			c.must(c.shared())
			d, err := once(i)
			c.must(err)
			took = append(took, d)
		}
		slices.Sort(took)
		median := took[len(took)/2]
		ms := func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
		table = append(table, fmt.Sprintf("%-42s %8s %8s %8s %8s",
			name, ms(median), ms(took[0]), ms(took[len(took)-1]), ms(limit)))
		if median > limit {
			t.Errorf("%s: the median of %d is %v, more than %v", name, len(took), median, limit)
		}
	}
	for _, e := range endings {
		measure(e.name, e.limit, func(i int) (time.Duration, error) {
			n := c.nodes[i%fleet]
			took, err := c.takeover(n, e.strike)
			return took, errors.Join(err, e.undo(n))
		})
	}
	measure("the server is killed and started again", 2*time.Second,
		func(int) (time.Duration, error) { return c.recover() })
	ledger := func(i int) projection.ID { return projection.ID{Tenant: tenants[i%len(tenants)], Name: "ledger"} }
	measure("Pause, from another process", 200*time.Millisecond, func(i int) (time.Duration, error) {
		took, err := c.setDesiredState(ledger(i), engine.WantPause)
		return took, errors.Join(err, control.On(c.store.Engine()).SetDesiredState(c.ctx, ledger(i), engine.WantRun))
	})
	measure("Resume, from another process", 200*time.Millisecond, func(i int) (time.Duration, error) {
		if _, err := c.setDesiredState(ledger(i), engine.WantPause); err != nil {
			return 0, err
		}
		return c.setDesiredState(ledger(i), engine.WantRun)
	})
	t.Logf("%d times each, lease %v, heartbeat %v, failure detection %v\n%s", *takeovers, leaseTime, heartbeat,
		failureDetection, strings.Join(table, "\n"))
	moved := c.finish().ownership.some(true)
	t.Logf("%d leases moved to nodes that joined, each without an owner for %v in the median, and at most %v",
		len(moved), median(moved).Round(time.Millisecond), longest(moved).gap.Round(time.Millisecond))
}

// takeover strikes a node and returns how long it takes until other nodes have claimed all its leases.
func (c *cluster) takeover(n *node, strike func(n *node) error) (time.Duration, error) {
	victim := n.current()
	defer c.hit(victim, "struck")()
	leases, err := rows(c, pgx.RowTo[int32], "select id from millrace.leases where owner = $1", victim.identity())
	if err != nil {
		return 0, err
	}
	since := time.Now()
	if err := strike(n); err != nil {
		return 0, err
	}
	var last time.Time
	err = until(c.ctx, 30*time.Second, "other nodes own the leases", func() bool {
		claimed, err := rows(c, pgx.RowTo[time.Time],
			`select max(o.at) from public.ownership o join millrace.leases l on l.id = o.lease and l.owner = o.owner
			where o.lease = any($1) and l.owner <> $2 group by o.lease`, leases, victim.identity())
		if err != nil || len(claimed) < len(leases) {
			return false
		}
		last = slices.MaxFunc(claimed, time.Time.Compare)
		return true
	})
	return last.Sub(since), err
}

// setDesiredState pauses or resumes a projection, and returns how long it takes until its lease is free or claimed.
func (c *cluster) setDesiredState(id projection.ID, desired engine.DesiredState) (time.Duration, error) {
	since := time.Now()
	if err := control.On(c.store.Engine()).SetDesiredState(c.ctx, id, desired); err != nil {
		return 0, err
	}
	var done []time.Time
	err := until(c.ctx, 30*time.Second, fmt.Sprintf("the desired state of %s is %s, and reached", id, desired),
		func() (so bool) {
			var err error
			done, err = rows(c, pgx.RowTo[time.Time],
				`select o.at from public.ownership o join millrace.projections p on p.id = o.lease
			where p.tenant = $1 and p.name = $2 and o.at > $3 and (o.owner is null) = $4 order by o.id limit 1`,
				id.Tenant, id.Name, since, desired == engine.WantPause)
			return err == nil && len(done) == 1
		})
	if err != nil {
		return 0, err
	}
	return done[0].Sub(since), nil
}

// recover kills the server, starts it again, and returns how long it takes from then until every projection has handled
// all events.
func (c *cluster) recover() (time.Duration, error) {
	defer c.outage()()
	if err := c.server().Kill(); err != nil {
		return 0, err
	}
	c.wait(300 * time.Millisecond)
	if err := c.server().StartAgain(c.ctx); err != nil {
		return 0, err
	}
	since := time.Now()
	err := c.progress()
	return time.Since(since), err
}

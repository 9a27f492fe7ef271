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

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// ending is a way in which a node, or the server, goes away, and how long it may take until everything has an owner that
// is at work.
type ending struct {
	name string
	want time.Duration
	// strike does it and returns since when; mend undoes it.
	strike func(c *cluster, n *node) (since time.Time, err error)
	mend   func(c *cluster, n *node) error
}

// endings are those of the table in docs/ownership.md.
var endings = []ending{
	{
		name: "a node stops in order", want: 200 * time.Millisecond,
		strike: func(c *cluster, n *node) (time.Time, error) {
			since := time.Now()
			return since, n.stop()
		},
		mend: func(c *cluster, n *node) error { n.start(); return nil },
	},
	{
		name: "a node is killed (SIGKILL)", want: time.Second,
		strike: func(c *cluster, n *node) (time.Time, error) {
			since := time.Now()
			n.halt()
			return since, nil
		},
		mend: func(c *cluster, n *node) error { n.start(); return nil },
	},
	{
		name: "a node is frozen (SIGSTOP)", want: leaseTime + time.Second,
		strike: func(c *cluster, n *node) (time.Time, error) {
			since := time.Now()
			n.current().signal(syscall.SIGSTOP)
			return since, nil
		},
		mend: func(c *cluster, n *node) error { n.current().signal(syscall.SIGCONT); return nil },
	},
	{
		name: "a node's network swallows everything", want: leaseTime + time.Second,
		strike: func(c *cluster, n *node) (time.Time, error) {
			since := time.Now()
			n.proxy.poison(weather{silent: true})
			return since, nil
		},
		mend: func(c *cluster, n *node) error { return n.proxy.heal() },
	},
}

// TestTakeoverTimes measures, for each ending, how long it is from it until the last lease of the node has another owner;
// from when a killed server accepts connections again until every projection has applied what was appended then; and how
// soon the owner does what another process tells it.
func TestTakeoverTimes(t *testing.T) {
	if *takeovers == 0 {
		t.Skip("measures where -takeovers says how often")
	}
	c := setup(t, options{limit: time.Hour, seed: 1, repeat: "make takeover"})
	table := []string{fmt.Sprintf("%-42s %8s %8s %8s %8s", "", "median", "least", "most", "limit")}
	row := func(name string, want time.Duration, took []time.Duration) {
		slices.Sort(took)
		median := took[len(took)/2]
		ms := func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
		table = append(table, fmt.Sprintf("%-42s %8s %8s %8s %8s", name, ms(median), ms(took[0]), ms(took[len(took)-1]), ms(want)))
		if median > want {
			t.Errorf("%s: the median of %d is %v, more than %v", name, len(took), median, want)
		}
	}
	for _, e := range endings {
		var took []time.Duration
		for i := range *takeovers {
			c.must(c.shared())
			d, err := c.takeover(e, c.nodes[i%fleet])
			c.must(err)
			took = append(took, d)
		}
		row(e.name, e.want, took)
	}
	var took []time.Duration
	for range *takeovers {
		c.must(c.shared())
		d, err := c.back()
		c.must(err)
		took = append(took, d)
	}
	row("the server is killed and comes back", 2*time.Second, took)
	var paused, resumed []time.Duration
	for i := range *takeovers {
		c.must(c.shared())
		id := projection.ID{Tenant: tenants[i%len(tenants)], Name: "ledger"}
		d, err := c.told(id, engine.WantPause)
		c.must(err)
		paused = append(paused, d)
		d, err = c.told(id, engine.WantRun)
		c.must(err)
		resumed = append(resumed, d)
	}
	row("Pause, from another process", 200*time.Millisecond, paused)
	row("Resume, from another process", 200*time.Millisecond, resumed)
	t.Logf("%d times each, lease %v, heartbeat %v, death notice %v\n%s", *takeovers, leaseTime, heartbeat, deathNotice, strings.Join(table, "\n"))
	r, err := c.settle()
	c.must(err)
	c.verify(r)
	moved := r.ownership.some(true)
	t.Logf("%d leases were moved to nodes that came, each without an owner for %v in the median, and %v at the most",
		len(moved), median(moved).Round(time.Millisecond), longest(moved).gap.Round(time.Millisecond))
}

// shared waits until every node lives and has its share.
func (c *cluster) shared() error {
	if err := c.live(); err != nil {
		return err
	}
	return until(c.ctx, 30*time.Second, "every node has its share", func() bool {
		least := len(tenants) * len(concerns) / fleet
		return !slices.ContainsFunc(c.nodes[:fleet], func(n *node) bool { return c.owned(n.current()) < least })
	})
}

// takeover strikes a node and returns when the last of its leases was claimed, from when it was struck.
func (c *cluster) takeover(e ending, n *node) (time.Duration, error) {
	victim := n.current()
	over := c.hit(victim, e.name)
	defer over()
	leases, err := rows(c, pgx.RowTo[int32], "select id from millrace.leases where owner = $1", victim.identity())
	if err != nil {
		return 0, err
	}
	since, err := e.strike(c, n)
	if err != nil {
		return 0, err
	}
	var last time.Time
	err = until(c.ctx, 30*time.Second, "others own what the node owned", func() bool {
		claimed, err := rows(c, pgx.RowTo[time.Time], `select max(o.at) from public.ownership o join millrace.leases l on l.id = o.lease and l.owner = o.owner
			where o.lease = any($1) and l.owner <> $2 group by o.lease`, leases, victim.identity())
		if err != nil || len(claimed) < len(leases) {
			return false
		}
		last = slices.MaxFunc(claimed, time.Time.Compare)
		return true
	})
	return last.Sub(since), errors.Join(err, e.mend(c, n))
}

// told pauses or resumes a projection, and returns how long it took until its lease was free or claimed.
func (c *cluster) told(id projection.ID, wanted engine.DesiredState) (time.Duration, error) {
	since := time.Now()
	if err := c.store.Engine().SetDesiredState(c.ctx, id, wanted); err != nil {
		return 0, err
	}
	var done []time.Time
	err := until(c.ctx, 30*time.Second, fmt.Sprintf("%s is wanted to %s, and does", id, wanted), func() (so bool) {
		var err error
		done, err = rows(c, pgx.RowTo[time.Time], `select o.at from public.ownership o join millrace.projections p on p.id = o.lease
			where p.tenant = $1 and p.name = $2 and o.at > $3 and (o.owner is null) = $4 order by o.id limit 1`,
			id.Tenant, id.Name, since, wanted == engine.WantPause)
		return err == nil && len(done) == 1
	})
	if err != nil {
		return 0, err
	}
	return done[0].Sub(since), nil
}

// back kills the server, starts it again, and returns how long it takes from then on until every projection has handled
// all that there was.
func (c *cluster) back() (time.Duration, error) {
	over := c.noNodes()
	defer over()
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

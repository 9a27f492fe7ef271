package chaos_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/projection"
)

// lease is the row of a lease.
type lease struct {
	Tenant, Name          string
	Partition, Partitions int
	Owner                 string
	Alive                 bool // the owner's heartbeat has not expired
	Checkpoint, Head      int64
}

// leases returns all leases of the standing tenants, with the heads of their tenants.
func (c *cluster) leases() ([]lease, error) { return c.leasesOf(tenants...) }

// leasesOf returns all leases of some tenants.
func (c *cluster) leasesOf(names ...string) ([]lease, error) {
	heads := make([]string, len(names))
	for i, tenant := range names {
		heads[i] = fmt.Sprintf("select '%s' as tenant, coalesce(max(global_seq), 0) as head from %s", tenant,
			eventsOf(tenant))
	}
	return rows(c, pgx.RowToStructByPos[lease],
		`select p.tenant, p.name, p.partition, p.partitions, coalesce(l.owner::text, ''), n.expires_at > clock_timestamp() is true, l.checkpoint, h.head
		from millrace.leases l join millrace.projections p using (id) left join millrace.nodes n on n.id = l.owner
		join (`+strings.Join(heads, " union all ")+`) h on h.tenant = p.tenant`)
}

// owned counts the leases of a process.
func (c *cluster) owned(p *process) (n int) {
	all, err := c.leases()
	if err != nil || p == nil || p.identity() == "" {
		return 0
	}
	for _, l := range all {
		if l.Owner == p.identity() {
			n++
		}
	}
	return n
}

// busiest returns the node that owns the most leases, of those that own a lease of that projection. An empty name means
// any.
func (c *cluster) busiest(projection string) *node {
	all, err := c.leases()
	c.must(err)
	owned := make(map[string]int)
	for _, l := range all {
		owned[l.Owner]++
		if l.Name == projection {
			owned[l.Owner] += len(all)
		}
	}
	leases := func(n *node) int {
		if p := n.current(); p != nil {
			return owned[p.identity()]
		}
		return 0
	}
	return slices.MaxFunc(c.nodes, func(a, b *node) int { return leases(a) - leases(b) })
}

// registered reports whether a process is registered and its heartbeat has not expired.
func (c *cluster) registered(p *process) bool {
	if p == nil || p.identity() == "" {
		return false
	}
	n, err := value[int](c, "select count(*) from millrace.nodes where id = $1 and expires_at > clock_timestamp()",
		p.identity())
	return err == nil && n == 1
}

// complete reports whether the leases are those of all partitions of all projections of so many tenants.
func complete(all []lease, tenants int) bool {
	found := make(map[projection.ID]int)
	want := make(map[projection.ID]int)
	for _, l := range all {
		id := projection.ID{Tenant: l.Tenant, Name: l.Name}
		found[id]++
		want[id] = l.Partitions
	}
	return len(want) == tenants*len(projectionTypes) && maps.Equal(found, want)
}

// live waits until every node is registered and every lease has a living owner.
func (c *cluster) live() error {
	var all []lease
	err := until(c.ctx, 30*time.Second, "every node is registered and every lease owned", func() bool {
		if slices.ContainsFunc(c.nodes, func(n *node) bool { return n.isWanted() && !c.registered(n.current()) }) {
			return false
		}
		var err error
		all, err = c.leases()
		return err == nil && complete(all, len(tenants)) &&
			!slices.ContainsFunc(all, func(l lease) bool { return !l.Alive })
	})
	if err != nil {
		return fmt.Errorf("%w: %+v", err, all)
	}
	return nil
}

// shared waits until every node owns its share.
func (c *cluster) shared() error {
	if err := c.live(); err != nil {
		return err
	}
	return until(c.ctx, 30*time.Second, "every node owns its share", func() bool {
		least := len(tenants) * len(projectionTypes) / fleet
		return !slices.ContainsFunc(c.nodes[:fleet], func(n *node) bool { return c.owned(n.current()) < least })
	})
}

// standstill is how long a projection that lags may handle nothing. A slow machine takes longer for all events, not for
// the next ones.
const standstill = 30 * time.Second

// progress waits until every projection has passed the current head of its tenant.
func (c *cluster) progress() error {
	before, err := c.leases()
	if err != nil {
		return err
	}
	lagging, err := c.advance(standstill, "every projection makes progress", func() ([]lease, error) {
		after, err := c.leases()
		return slices.DeleteFunc(after, func(a lease) bool {
			return !slices.ContainsFunc(before,
				func(b lease) bool { return a.Tenant == b.Tenant && a.Name == b.Name && a.Checkpoint <= b.Head })
		}), err
	})
	if err != nil {
		return fmt.Errorf("%w: %+v", err, lagging)
	}
	return nil
}

// caughtUp waits until every projection has handled everything, while the writers pause. It returns those that have
// not, once one of them handles nothing for the limit.
func (c *cluster) caughtUp(limit time.Duration) (lagging []lease, err error) {
	return c.caughtUpOf(limit, tenants...)
}

// caughtUpOf is caughtUp for some tenants.
func (c *cluster) caughtUpOf(limit time.Duration, names ...string) (lagging []lease, err error) {
	return c.advance(limit, "every projection has handled everything", func() ([]lease, error) {
		all, err := c.leasesOf(names...)
		if err == nil && !complete(all, len(names)) {
			err = errors.New("leases are missing")
		}
		return slices.DeleteFunc(all, func(l lease) bool { return l.Checkpoint == l.Head }), err
	})
}

// advance waits until no lease lags. It fails once a lagging lease has stood at its checkpoint for the limit, or all
// reads of the leases have failed for so long.
func (c *cluster) advance(limit time.Duration, what string, lagging func() ([]lease, error)) (last []lease, err error) {
	var stands bool
	var failed error
	read, since := time.Now(), make(map[lease]time.Time)
	err = until(c.ctx, c.options.limit, what, func() bool {
		now := time.Now()
		all, err := lagging()
		failed = err
		if err == nil {
			read, last = now, all
		}
		stands = now.Sub(read) > limit
		before := since
		since = make(map[lease]time.Time, len(last))
		for _, l := range last {
			l.Owner, l.Alive, l.Head = "", false, 0 // they change without progress
			since[l] = cmp.Or(before[l], now)
			stands = stands || now.Sub(since[l]) > limit
		}
		return stands || err == nil && len(all) == 0
	})
	if stands {
		err = fmt.Errorf("no progress within %v: %s", limit, what)
	}
	if err != nil {
		return last, errors.Join(err, failed)
	}
	return nil, nil
}

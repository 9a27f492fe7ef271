package chaos_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/projection"
)

// finish ends a test. It repairs everything, stops the writers, lets every projection catch up, stops the nodes in
// order, and fails the test for every finding.
func (c *cluster) finish() (r report) {
	c.t.Helper()
	for _, n := range c.nodes {
		c.must(n.proxy.heal())
	}
	c.must(c.resolveLost())
	c.must(c.reopen())
	r.found(c.missingPoolers()...)
	err := c.live()
	if err == nil && c.schedule != "" {
		err = c.block()
	}
	if err != nil {
		r.found(nodeFinding("%v", err))
	}
	c.writers.stop()
	limit := time.Minute
	if c.t.Failed() || len(r.findings) > 0 {
		limit = 10 * time.Second // it only shows how far things are
	}
	c.must(c.compare(&r, limit))
	c.followers.stop()
	r.found(c.stopAll()...)
	c.must(c.checkNodes(&r))
	c.mu.Lock()
	r.struck = c.struck
	c.mu.Unlock()
	c.verify(r)
	return r
}

// compare waits until every projection has caught up and no event is parked, while the writers pause. Then it checks
// the history of every projection.
func (c *cluster) compare(r *report, limit time.Duration) error {
	lagging, err := c.caughtUp(limit)
	if err != nil && len(lagging) == 0 {
		r.found(nodeFinding("the leases are not complete: %v", err))
	}
	for _, l := range lagging {
		r.found(finding{
			kindLagging, projection.ID{Tenant: l.Tenant, Name: l.Name}, l.Checkpoint, fmt.Sprintf("%+v: %v", l, err),
		})
	}
	found, err := c.replayAll(limit)
	if err != nil {
		return err
	}
	r.found(found...)
	all, err := c.histories()
	if err != nil {
		return err
	}
	for _, h := range all {
		r.found(check(h)...)
		r.applied += len(h.applied)
		r.replayed += len(h.replayed)
		r.blocked += h.blocked
		r.discarded += len(h.discarded)
		if h.of.Name == deadly {
			r.appended += len(h.events) // once for each tenant
			r.found(twice(h)...)
		}
	}
	r.found(c.followers.compare(c.ctx, limit, all)...)
	r.found(c.compareTallies(tenants...)...)
	missing, lost := c.missing(c.writers, all)
	r.found(missing...)
	r.found(c.unexplained(c.writers)...)
	r.lost = lost
	return nil
}

// checkNodes checks the processes and the ownership of leases.
func (c *cluster) checkNodes(r *report) (err error) {
	r.ownership, err = c.ownership()
	r.found(c.misbehaved()...)
	r.found(r.ownership.findings...)
	return err
}

// histories returns everything that check needs. The writers must pause.
func (c *cluster) histories() (all []history, err error) { return c.historiesOf(tenants...) }

// historiesOf is histories for some tenants.
func (c *cluster) historiesOf(names ...string) (all []history, err error) {
	for _, tenant := range names {
		events, err := rows(c, pgx.RowToStructByPos[stored],
			"select global_seq, stream_id, stream_version, type, coalesce(body->>'token', '') from "+eventsOf(tenant)+
				" order by 1")
		if err != nil {
			return nil, fmt.Errorf("read the events of %s: %w", tenant, err)
		}
		for name, types := range projectionTypes {
			h := history{of: projection.ID{Tenant: tenant, Name: name}, types: types, events: events}
			_, h.split = c.split.Load(h.of)
			h.applied, err = rows(c, pgx.RowToStructByPos[application],
				`select position, stream, version, node, token
				from public.applied where tenant = $1 and projection = $2 order by id`, tenant, name)
			if err != nil {
				return nil, fmt.Errorf("read what %s applied: %w", h.of, err)
			}
			c.forgiven(h)
			letters, err := rows(c, pgx.RowToStructByPos[deadLetter],
				`select d.position, d.state, d.blocked_by_stream from millrace.dead_letters d
				join millrace.projections p on p.id = d.projection_id where p.tenant = $1 and p.name = $2`, tenant, name)
			if err != nil {
				return nil, fmt.Errorf("read the dead letters of %s: %w", h.of, err)
			}
			h.addDeadLetters(letters)
			if name == deadly {
				c.mu.Lock()
				h.expected = survivors(c.expected[tenant], events)
				c.mu.Unlock()
			}
			all = append(all, h)
		}
	}
	return all, nil
}

// survivors returns the positions of those events that still exist. A server may have lost them and reused their
// positions.
func survivors(some, events []stored) (positions []int64) {
	for _, e := range some {
		if slices.ContainsFunc(events,
			func(existing stored) bool { return existing.Position == e.Position && existing.Stream == e.Stream }) {
			positions = append(positions, e.Position)
		}
	}
	return positions
}

// missing finds acknowledged appends that do not exist. Those that may have been lost with a server are only counted.
func (c *cluster) missing(w *writers, all []history) (findings []finding, lost int) {
	for _, h := range all {
		if h.of.Name != deadly { // once for each tenant
			continue
		}
		tokens := make(map[int64]string, len(h.events))
		for _, e := range h.events {
			tokens[e.Position] = e.Token
		}
		for _, a := range w.acknowledgements(h.of.Tenant) {
			token, exists := tokens[a.position]
			switch {
			case exists && token == a.token:
			case c.mayBeLost(a.begun, a.done):
				lost++
			default:
				findings = append(findings, finding{kindAppend, projection.ID{Tenant: h.of.Tenant}, a.position,
					fmt.Sprintf("%s, appended from %s to %s; there is %q", a.token, a.begun.Format(clock),
						a.done.Format(clock), token)})
			}
		}
	}
	return findings, lost
}

// ownership reads the ownership log and analyzes it.
func (c *cluster) ownership() (ownership, error) {
	changes, err := rows(c, func(row pgx.CollectableRow) (ch change, err error) {
		err = row.Scan(&ch.at, &ch.lease, &ch.of.Tenant, &ch.of.Name, &ch.of.Partition, &ch.suspended, &ch.from, &ch.to,
			&ch.lastEpoch, &ch.epoch, &ch.lastBeat, &ch.expired)
		return ch, err
	},
		`select at, lease, tenant, name, partition, suspended, coalesce(last_owner::text, ''), coalesce(owner::text, ''), last_epoch, epoch, last_beat, expired
		from public.ownership order by id`)
	if err != nil {
		return ownership{}, fmt.Errorf("read the ownership log: %w", err)
	}
	var processes []*process
	for _, n := range c.nodes {
		processes = append(processes, n.allProcesses()...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	troubles := slices.Clone(c.troubles)
	for _, p := range processes {
		if !p.alive() {
			at, _ := p.end()
			// On a loaded machine other nodes notice the end before this process does.
			troubles = append(troubles, trouble{who: p, what: "ended", from: at.Add(-time.Second)})
		}
	}
	return analyze(changes, troubles, processes, c.outages), nil
}

// stopAll stops the nodes in order, all at once, and checks that they released their leases.
func (c *cluster) stopAll() (findings []finding) {
	errs := make(chan error)
	for _, n := range c.nodes {
		go func() { errs <- n.stop() }()
	}
	for range c.nodes {
		if err := <-errs; err != nil {
			findings = append(findings, nodeFinding("%v", err))
		}
	}
	held, err := rows(c, pgx.RowTo[string], "select owner::text from millrace.leases where owner is not null")
	if err != nil || len(held) > 0 {
		findings = append(findings, nodeFinding("leases owned after an orderly stop by %v, %v", held, err))
	}
	return findings
}

package chaos_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/projection"
)

// standing is a lease as it stands.
type standing struct {
	Tenant, Name, Owner string
	Alive               bool // the owner's heartbeat has not run out
	Checkpoint, Head    int64
}

// standings are all leases, with their tenants' heads.
func (c *cluster) standings() ([]standing, error) {
	var all []standing
	for _, tenant := range tenants {
		schema := pgx.Identifier{"millrace_" + tenant}.Sanitize()
		some, err := rows(c, pgx.RowToStructByPos[standing], `select p.tenant, p.name, coalesce(l.owner::text, ''), n.expires_at > clock_timestamp() is true,
			l.checkpoint, (select coalesce(max(global_seq), 0) from `+schema+`.events)
			from millrace.leases l join millrace.projections p using (id) left join millrace.nodes n on n.id = l.owner where p.tenant = $1`, tenant)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// owned counts the leases of a process.
func (c *cluster) owned(l *life) int {
	all, err := c.standings()
	if err != nil || l == nil || l.identity() == "" {
		return 0
	}
	n := 0
	for _, s := range all {
		if s.Owner == l.identity() {
			n++
		}
	}
	return n
}

// busiest is the node whose process owns the most leases.
func (c *cluster) busiest() *node {
	return slices.MaxFunc(c.nodes, func(a, b *node) int { return c.owned(a.current()) - c.owned(b.current()) })
}

// registered tells whether a process is on the list of the living nodes.
func (c *cluster) registered(l *life) bool {
	if l == nil || l.identity() == "" {
		return false
	}
	found, err := rows(c, pgx.RowTo[bool], "select expires_at > clock_timestamp() from millrace.nodes where id = $1", l.identity())
	return err == nil && len(found) == 1 && found[0]
}

// live waits until every node is registered, and every lease has an owner that lives.
func (c *cluster) live() error {
	var all []standing
	err := until(c.ctx, 30*time.Second, "every node is registered and every lease owned", func() bool {
		for _, n := range c.nodes {
			if n.isWanted() && !c.registered(n.current()) {
				return false
			}
		}
		var err error
		if all, err = c.standings(); err != nil || len(all) != len(tenants)*len(concerns) {
			return false
		}
		return !slices.ContainsFunc(all, func(s standing) bool { return !s.Alive })
	})
	if err != nil {
		return fmt.Errorf("%w: %+v", err, all)
	}
	return nil
}

// progress waits until every projection that has something to do has come on from where it stands now.
func (c *cluster) progress() error {
	before, err := c.standings()
	if err != nil {
		return err
	}
	var after []standing
	err = until(c.ctx, 30*time.Second, "every projection comes on", func() bool {
		after, err = c.standings()
		return err == nil && !slices.ContainsFunc(before, func(b standing) bool {
			return slices.ContainsFunc(after, func(a standing) bool { return a.Tenant == b.Tenant && a.Name == b.Name && a.Checkpoint <= b.Head })
		})
	})
	if err != nil {
		return fmt.Errorf("%w: %+v", err, after)
	}
	return nil
}

// caughtUp waits until every projection has handled everything, while nobody appends.
func (c *cluster) caughtUp(limit time.Duration) (behind []standing, err error) {
	err = until(c.ctx, limit, "every projection has handled everything", func() bool {
		all, err := c.standings()
		if err != nil {
			return false
		}
		behind = slices.DeleteFunc(all, func(s standing) bool { return s.Checkpoint == s.Head })
		return len(behind) == 0
	})
	return behind, err
}

// courses reads everything that is to be checked. Nothing may be under way.
func (c *cluster) courses() (courses []course, err error) {
	for _, tenant := range tenants {
		schema := pgx.Identifier{"millrace_" + tenant}.Sanitize()
		events, err := rows(c, pgx.RowToStructByPos[stored], "select global_seq, stream_id, stream_version, type, coalesce(body->>'token', '') from "+schema+".events order by 1")
		if err != nil {
			return nil, fmt.Errorf("read the events of %s: %w", tenant, err)
		}
		for name, types := range concerns {
			one := course{of: projection.ID{Tenant: tenant, Name: name}, types: types, events: events}
			if one.applied, err = rows(c, pgx.RowToStructByPos[application], `select position, stream, version, node, token
				from public.applied where tenant = $1 and projection = $2 order by id`, tenant, name); err != nil {
				return nil, fmt.Errorf("read what %s applied: %w", one.of, err)
			}
			letters, err := rows(c, pgx.RowToStructByPos[letter], `select d.position, d.state, d.blocked_by_stream from millrace.dead_letters d
				join millrace.projections p on p.id = d.projection_id where p.tenant = $1 and p.name = $2`, tenant, name)
			if err != nil {
				return nil, fmt.Errorf("read the dead letters of %s: %w", one.of, err)
			}
			one.take(letters)
			if name == deadly {
				c.mu.Lock()
				one.expected = survived(c.expected[tenant], events)
				c.mu.Unlock()
			}
			courses = append(courses, one)
		}
	}
	return courses, nil
}

// survived are the positions of events that are still there, and not others in their place.
func survived(some, events []stored) (positions []int64) {
	for _, e := range some {
		if slices.ContainsFunc(events, func(there stored) bool { return there.Position == e.Position && there.Stream == e.Stream }) {
			positions = append(positions, e.Position)
		}
	}
	return positions
}

// missing are the appends that a writer was told of and that are not there, nor were committed when a server lost what it
// had; of those, lost is the number.
func (c *cluster) missing(courses []course) (findings []finding, lost int) {
	seen := make(map[string]bool)
	for _, one := range courses {
		if seen[one.of.Tenant] {
			continue
		}
		seen[one.of.Tenant] = true
		there := make(map[int64]string, len(one.events))
		for _, e := range one.events {
			there[e.Position] = e.Token
		}
		for _, a := range c.writers.acknowledgements(one.of.Tenant) {
			token, exists := there[a.position]
			switch {
			case exists && token == a.token:
			case c.excused(a.begun, a.done):
				lost++
			default:
				findings = append(findings, finding{kindAppend, projection.ID{Tenant: one.of.Tenant}, a.position,
					fmt.Sprintf("%s, appended from %s to %s; there is %q", a.token, a.begun.Format(clock), a.done.Format(clock), token)})
			}
		}
	}
	return findings, lost
}

// lost counts the events that writers were told of, and that a server lost.
func (c *cluster) lost() (int, error) {
	courses, err := c.courses()
	if err != nil {
		return 0, err
	}
	_, lost := c.missing(courses)
	return lost, nil
}

// judged reads the journal and judges it.
func (c *cluster) judged() (ownership, error) {
	changes, err := rows(c, func(row pgx.CollectableRow) (ch change, err error) {
		err = row.Scan(&ch.at, &ch.of.Tenant, &ch.of.Name, &ch.from, &ch.to, &ch.lastEpoch, &ch.epoch, &ch.lastBeat, &ch.ranOut)
		return ch, err
	}, `select o.at, p.tenant, p.name, coalesce(o.last_owner::text, ''), coalesce(o.owner::text, ''), o.last_epoch, o.epoch, o.last_beat, o.ran_out
		from public.ownership o join millrace.projections p on p.id = o.lease order by o.id`)
	if err != nil {
		return ownership{}, fmt.Errorf("read the journal of the leases: %w", err)
	}
	var lives []*life
	for _, n := range c.nodes {
		if err := n.learnFromLog(); err != nil {
			return ownership{}, err
		}
		lives = append(lives, n.allLives()...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	troubles := slices.Clone(c.troubles)
	for _, l := range lives {
		if !l.alive() {
			// On a loaded machine others notice the end before this process does.
			troubles = append(troubles, trouble{who: l, what: "gone", from: l.endedAt().Add(-time.Second)})
		}
	}
	return judge(changes, troubles, lives, c.away), nil
}

// settle ends a test: everything is healed, the writers stop, every projection catches up, and what was applied is
// compared with what was committed. The nodes then stop in order.
func (c *cluster) settle() (r report, err error) {
	for _, n := range c.nodes {
		if err := n.proxy.heal(); err != nil {
			return r, err
		}
	}
	if err := c.resolveLost(); err != nil {
		return r, err
	}
	if err := c.live(); err != nil {
		r.findings = append(r.findings, finding{kind: kindNode, detail: err.Error()})
	}
	c.writers.stop()
	limit := time.Minute
	if c.t.Failed() || len(r.findings) > 0 {
		limit = 10 * time.Second // it only has to be seen how far things are
	}
	if err := c.compare(&r, limit); err != nil {
		return r, err
	}
	r.findings = append(r.findings, c.stopAll()...)
	r.findings = append(r.findings, c.misbehaved()...)
	if r.ownership, err = c.judged(); err != nil {
		return r, err
	}
	r.findings = append(r.findings, r.ownership.findings...)
	c.mu.Lock()
	defer c.mu.Unlock()
	r.struck = c.struck
	return r, nil
}

// compare waits until every projection has caught up, while nobody appends, and compares what was applied with what was
// committed.
func (c *cluster) compare(r *report, limit time.Duration) error {
	behind, err := c.caughtUp(limit)
	for _, s := range behind {
		r.findings = append(r.findings, finding{kindBehind, projection.ID{Tenant: s.Tenant, Name: s.Name}, s.Checkpoint, fmt.Sprintf("%+v: %v", s, err)})
	}
	found, err := c.replayAll(limit)
	if err != nil {
		return err
	}
	r.findings = append(r.findings, found...)
	courses, err := c.courses()
	if err != nil {
		return err
	}
	for _, one := range courses {
		r.findings = append(r.findings, check(one)...)
		r.applied += len(one.applied)
		r.replayed += len(one.replayed)
		r.behind += one.behind
		r.discarded += len(one.discarded)
		if one.of.Name == deadly {
			r.appended += len(one.events) // once for each tenant
		}
	}
	missing, lost := c.missing(courses)
	r.findings, r.lost = append(r.findings, missing...), lost
	return nil
}

// stopAll stops the nodes in order, all at once, and looks whether they left anything behind.
func (c *cluster) stopAll() (findings []finding) {
	errs := make(chan error)
	for _, n := range c.nodes {
		go func() { errs <- n.stop() }()
	}
	for range c.nodes {
		if err := <-errs; err != nil {
			findings = append(findings, finding{kind: kindNode, detail: err.Error()})
		}
	}
	held, err := rows(c, pgx.RowTo[string], "select owner::text from millrace.leases where owner is not null")
	if err != nil || len(held) > 0 {
		findings = append(findings, finding{kind: kindNode, detail: fmt.Sprintf("leases held after an orderly stop by %v, %v", held, err)})
	}
	return findings
}

// wait lets a while go by.
func (c *cluster) wait(d time.Duration) { pass(c.ctx, d) }

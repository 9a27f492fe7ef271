package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// dependencyTable holds the dependency of poison events: they fail at positions after available. seen is the head of
// the tenant when it was last made available.
const dependencyTable = `create table public.dependency (tenant text primary key, available bigint not null default 0, seen bigint not null default 0)`

// errDependency is the error of a handler for a poison event.
var errDependency = errors.New("its dependency is missing")

// useDependency fails at the first poison event whose dependency is not available. For half of the events its error
// does not say which event failed.
func useDependency(ctx context.Context, tx pgx.Tx, tenant string, events []event.Envelope) error {
	first := slices.IndexFunc(events, func(e event.Envelope) bool { return e.Type == typePoison })
	if first < 0 {
		return nil
	}
	var available int64
	if err := tx.QueryRow(ctx, "select available from public.dependency where tenant = $1",
		tenant).Scan(&available); err != nil {
		return err
	}
	for _, e := range events[first:] {
		if e.Type != typePoison || e.Position <= available {
			continue
		}
		if e.Version%2 == 0 {
			return errDependency
		}
		return projection.At(e.Position, errDependency)
	}
	return nil
}

// maintain makes the dependency of poison events available about a second after their append, unless a fault withholds
// it, and checks the dead letters meanwhile.
func (c *cluster) maintain() {
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 1; ctx.Err() == nil; i++ {
			kit.Pass(ctx, 700*time.Millisecond)
			if c.withheld.Load() == 0 {
				// it fails during an outage
				_ = c.updateDependency(ctx, "available = greatest(available, seen), seen = head", tenants...)
			}
			if i%3 == 0 {
				if found, err := c.contradictions(ctx, c.admin); err == nil {
					c.mu.Lock()
					c.noticed = append(c.noticed, found...)
					c.mu.Unlock()
				}
			}
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-done
	})
}

// updateDependency sets columns of public.dependency for tenants. The last position of each is head.
func (c *cluster) updateDependency(ctx context.Context, set string, names ...string) error {
	for _, tenant := range names {
		_, err := c.admin.Exec(ctx, `update public.dependency set `+set+
			` from (select coalesce(max(global_seq), 0) as head from `+eventsOf(tenant)+`) e where tenant = $1`, tenant)
		if err != nil {
			return err
		}
	}
	return nil
}

// withhold keeps the dependency of new poison events unavailable until over is called.
func (c *cluster) withhold() (over func()) {
	c.withheld.Add(1)
	return func() { c.withheld.Add(-1) }
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// contradictionsSQL finds contradictions between the dead letters of shipments of a tenant, their commands and the read
// model, over all partitions. It can run at any time, because a batch, a replay, a discard and a split are each one
// transaction.
const contradictionsSQL = `
with p as (
    select p.*, l.checkpoint, int4range(p.slot_from, p.slot_to) as slots
      from millrace.projections p join millrace.leases l using (id) where p.tenant = $1 and p.name = $2
), handled as (
    select slots, checkpoint as upto from p
    union all select int4range(s.slot_from, s.slot_to), s.upto from p, unnest(p.passed_from, p.passed_to, p.passed_upto) s (slot_from, slot_to, upto)
), letters as (
    select d.*, ('x' || left(md5(d.stream_id), 7))::bit(28)::integer as slot from millrace.dead_letters d join p on d.projection_id = p.id
), waiting as (
    select * from letters where state in ('parked', 'replaying')
), streams as (
    select s.projection_id, s.stream_id from millrace.parked_streams s join p on s.projection_id = p.id
), commands as (
    select c.* from millrace.commands c join p on c.projection_id = p.id
), applied as (
    select position, stream, version, ('x' || left(md5(stream), 7))::bit(28)::integer as slot
      from public.applied where tenant = $1 and projection = $2
)
select 'miscounted', p.checkpoint, format('the counter of parked events is %s, there are %s', p.parked, n)
  from p, lateral (select count(*) as n from waiting where projection_id = p.id) w where p.parked <> n
union all
select 'partitions do not fit', 0, format('%s of %s', count(*), max(partitions)) from p
having count(*) > 0 and (count(*) <> max(partitions) or min(partitions) <> max(partitions) or count(distinct token) <> 1
    or range_agg(slots) <> '{[0,268435456)}' or sum(slot_to - slot_from) <> 268435456)
union all
select 'of another partition', l.position, l.stream_id from letters l join p on p.id = l.projection_id where not p.slots @> l.slot
union all
select 'miscounted', 0, format('commands: %s replayed, %s failed, %s discarded; dead letters: %s, %s, %s', c.made, c.failed, c.discarded, l.made, l.failed, l.discarded)
  from (select coalesce(sum(done) filter (where kind = 'replay'), 0) as made, coalesce(sum(done) filter (where kind = 'discard'), 0) as discarded,
               coalesce(sum(failed), 0) as failed from commands) c,
       (select count(*) filter (where state = 'resolved') as made, count(*) filter (where state = 'discarded') as discarded,
               coalesce(sum(replays), 0) as failed from letters) l
 where (c.made, c.failed, c.discarded) is distinct from (l.made, l.failed, l.discarded)
union all
select 'parked and applied', w.position, format('%s version %s, %s', w.stream_id, w.stream_version, w.state) from waiting w join applied a using (position)
union all
select 'resolved and not applied', l.position, l.stream_id from letters l where l.state = 'resolved' and not exists (select from applied a where a.position = l.position)
union all
select 'overtaken', w.position, format('version %s of %s is parked, and version %s applied', w.stream_version, w.stream_id, a.version)
  from waiting w join applied a on a.stream = w.stream_id and a.version > w.stream_version
union all
select 'stream is not parked', w.position, w.stream_id from waiting w where (w.projection_id, w.stream_id) not in (select projection_id, stream_id from streams)
union all
select 'parked stream without events', 0, s.stream_id from streams s where (s.projection_id, s.stream_id) not in (select projection_id, stream_id from waiting)
union all
select 'blocked by no other', w.position, w.stream_id from waiting w
 where w.blocked_by_stream and not exists (select from waiting e where e.stream_id = w.stream_id and e.position < w.position)
   and w.stream_id not in (select stream_id from letters where state = 'resolved')
union all
select 'neither applied nor parked', e.global_seq, e.stream_id
  from {events} e where exists (select from handled h where h.slots @> e.slot and e.global_seq <= h.upto) and e.type in ('plain', 'odd', 'poison')
   and not exists (select from applied a where a.position = e.global_seq) and not exists (select from letters l where l.position = e.global_seq)
union all
select 'beyond the checkpoint', a.position, a.stream from applied a
 where not exists (select from handled h where h.slots @> a.slot and a.position <= h.upto)`

// unfinishedSQL finds dead letters and commands of shipments of a tenant that are not finished.
const unfinishedSQL = `
select 'still parked', d.position, format('%s version %s: %s', d.stream_id, d.stream_version, d.error)
  from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id
 where p.tenant = $1 and p.name = $2 and d.state in ('parked', 'replaying')
union all
select 'stream is still parked', 0, s.stream_id
  from millrace.parked_streams s join millrace.projections p on p.id = s.projection_id where p.tenant = $1 and p.name = $2
union all
select 'command not finished', c.id, c.kind
  from millrace.commands c join millrace.projections p on p.id = c.projection_id where p.tenant = $1 and p.name = $2 and c.ended_at is null`

// contradictions checks the dead letters of shipments of the standing tenants.
func (c *cluster) contradictions(ctx context.Context, q querier) ([]finding, error) {
	return findDeadLetters(ctx, q, contradictionsSQL, tenants...)
}

// unfinished returns the dead letters and commands of shipments of the standing tenants that are not finished.
func (c *cluster) unfinished(ctx context.Context, q querier) ([]finding, error) {
	return findDeadLetters(ctx, q, unfinishedSQL, tenants...)
}

func findDeadLetters(ctx context.Context, q querier, sql string, names ...string) (all []finding, err error) {
	for _, tenant := range names {
		found, err := find(ctx, q, strings.Replace(sql, "{events}", eventsOf(tenant), 1),
			projection.ID{Tenant: tenant, Name: shipments}, tenant, shipments)
		if err != nil {
			return nil, fmt.Errorf("check the dead letters of %s: %w", tenant, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// find returns the findings about a projection that a query selects: their kind, position and detail.
func find(ctx context.Context, q querier, sql string, of projection.ID, args ...any) ([]finding, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (finding, error) {
		f := finding{of: of}
		err := row.Scan(&f.kind, &f.at, &f.detail)
		return f, err
	})
}

// replayAll makes every dependency available, waits until no event is parked, and returns what is wrong with dead
// letters.
func (c *cluster) replayAll(limit time.Duration) (findings []finding, err error) {
	var left []finding
	if err := until(c.ctx, limit, "all dead letters are replayed", func() bool {
		if c.updateDependency(c.ctx, "available = greatest(available, head)", tenants...) != nil {
			return false
		}
		left, err = c.unfinished(c.ctx, c.admin)
		return err == nil && len(left) == 0
	}); err != nil && len(left) == 0 {
		return nil, err
	}
	err = c.retried(func(ctx context.Context) error {
		found, err := c.contradictions(ctx, c.admin)
		findings = append(left, found...)
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	findings, c.noticed = append(findings, c.noticed...), nil
	return findings, err
}

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// outsideTable says up to which position of a tenant what poison events need is there, for all nodes to see, and what was the
// highest position when somebody looked last.
const outsideTable = `create table public.outside (tenant text primary key, mended bigint not null default 0, seen bigint not null default 0)`

// errMissing is what a handler says about a poison event.
var errMissing = errors.New("what it needs is missing")

// needs fails at the first event of which what it needs is missing. Half of the time it does not say which that is.
func needs(ctx context.Context, tx pgx.Tx, tenant string, events []event.Envelope) error {
	mended, asked := int64(0), false
	for _, e := range events {
		if e.Type != typePoison {
			continue
		}
		if !asked {
			if err := tx.QueryRow(ctx, "select mended from public.outside where tenant = $1", tenant).Scan(&mended); err != nil {
				return err
			}
			asked = true
		}
		switch {
		case e.Position <= mended:
		case e.Version%2 == 0:
			return errMissing
		default:
			return projection.At(e.Position, errMissing)
		}
	}
	return nil
}

const (
	// mendEvery is how far apart the looks of the caretaker are: what a poison event needs comes one or two of them later.
	mendEvery = 700 * time.Millisecond
	// auditEvery is how many of them it makes before it looks at the dead letters.
	auditEvery = 3
)

// takeCare mends what poison events need, a while after they were appended and unless a fault has that wait, and looks at the
// dead letters meanwhile.
func (c *cluster) takeCare() {
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(mendEvery)
		defer tick.Stop()
		for i := 1; ; i++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			// Where the server is away that is done the next time.
			if c.withheld.Load() == 0 {
				_ = c.mend(ctx, "mended = greatest(mended, seen), seen = head")
			}
			if i%auditEvery == 0 {
				if found, err := c.auditLetters(ctx, c.admin); err == nil {
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

// mend sets what is mended of each tenant, with its highest position as head.
func (c *cluster) mend(ctx context.Context, set string) error {
	for _, tenant := range tenants {
		schema := pgx.Identifier{"millrace_" + tenant}.Sanitize()
		_, err := c.admin.Exec(ctx, `update public.outside set `+set+` from (select coalesce(max(global_seq), 0) as head from `+schema+`.events) e where tenant = $1`, tenant)
		if err != nil {
			return err
		}
	}
	return nil
}

// withhold keeps from now on everything that poison events need.
func (c *cluster) withhold() (over func()) {
	c.withheld.Add(1)
	return func() { c.withheld.Add(-1) }
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// lettersSQL finds what contradicts itself in one snapshot of the projection shipments of a tenant, at any time: a batch, a
// replay, a command to discard are each seen whole or not at all.
const lettersSQL = `
with p as (
    select p.id, p.parked, l.checkpoint from millrace.projections p join millrace.leases l using (id) where p.tenant = $1 and p.name = $2
), letters as (
    select d.* from millrace.dead_letters d join p on d.projection_id = p.id
), waiting as (
    select * from letters where state in ('parked', 'replaying')
), streams as (
    select s.stream_id from millrace.parked_streams s join p on s.projection_id = p.id
), commands as (
    select c.* from millrace.commands c join p on c.projection_id = p.id
), applied as (
    select position, stream, version from public.applied where tenant = $1 and projection = $2
)
select 'miscounted', p.checkpoint, format('%s are said to be parked, %s are', p.parked, n)
  from p, (select count(*) as n from waiting) w where p.parked <> n
union all
select 'miscounted', p.checkpoint, format('replays made %s, failed %s, discarded %s; the letters say %s, %s, %s', c.made, c.failed, c.discarded, l.made, l.failed, l.discarded)
  from p, (select coalesce(sum(done) filter (where kind = 'replay'), 0) as made, coalesce(sum(done) filter (where kind = 'discard'), 0) as discarded,
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
select 'stream is not parked', w.position, w.stream_id from waiting w where w.stream_id not in (select stream_id from streams)
union all
select 'parked stream without events', 0, s.stream_id from streams s where s.stream_id not in (select stream_id from waiting)
union all
select 'behind nobody', w.position, w.stream_id from waiting w
 where w.blocked_by_stream and not exists (select from waiting e where e.stream_id = w.stream_id and e.position < w.position)
   and w.stream_id not in (select stream_id from letters where state = 'resolved')
union all
select 'neither applied nor parked', e.global_seq, e.stream_id
  from {events} e, p where e.global_seq <= p.checkpoint and e.type = any($3)
   and not exists (select from applied a where a.position = e.global_seq) and not exists (select from letters l where l.position = e.global_seq)
union all
select 'beyond the checkpoint', a.position, a.stream from applied a, p where a.position > p.checkpoint`

// restSQL finds what is left when all poison events have what they need, and all is handled.
const restSQL = `
select 'still parked', d.position, format('%s version %s: %s', d.stream_id, d.stream_version, d.error)
  from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id
 where p.tenant = $1 and p.name = $2 and d.state in ('parked', 'replaying')
union all
select 'stream is still parked', 0, s.stream_id
  from millrace.parked_streams s join millrace.projections p on p.id = s.projection_id where p.tenant = $1 and p.name = $2
union all
select 'command not carried out', c.id, c.kind
  from millrace.commands c join millrace.projections p on p.id = c.projection_id where p.tenant = $1 and p.name = $2 and c.ended_at is null`

// auditLetters looks at all there is about dead letters of shipments.
func (c *cluster) auditLetters(ctx context.Context, q querier) (findings []finding, err error) {
	for _, tenant := range tenants {
		schema := pgx.Identifier{"millrace_" + tenant}.Sanitize()
		sql := strings.Replace(lettersSQL, "{events}", schema+".events", 1)
		some, err := findLetters(ctx, q, tenant, sql, tenant, shipments, concerns[shipments])
		if err != nil {
			return nil, err
		}
		findings = append(findings, some...)
	}
	return findings, nil
}

// remains are what is left to be done with dead letters of shipments.
func (c *cluster) remains(ctx context.Context, q querier) (findings []finding, err error) {
	for _, tenant := range tenants {
		some, err := findLetters(ctx, q, tenant, restSQL, tenant, shipments)
		if err != nil {
			return nil, err
		}
		findings = append(findings, some...)
	}
	return findings, nil
}

func findLetters(ctx context.Context, q querier, tenant, sql string, args ...any) ([]finding, error) {
	found, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("look at the dead letters of %s: %w", tenant, err)
	}
	return pgx.CollectRows(found, func(row pgx.CollectableRow) (finding, error) {
		f := finding{of: projection.ID{Tenant: tenant, Name: shipments}}
		err := row.Scan(&f.kind, &f.at, &f.detail)
		return f, err
	})
}

// replayAll mends everything, waits until nothing is parked any more, and tells what is wrong with dead letters.
func (c *cluster) replayAll(limit time.Duration) (findings []finding, err error) {
	var left []finding
	if err := until(c.ctx, limit, "everything that was parked is replayed", func() bool {
		if c.mend(c.ctx, "mended = greatest(mended, head)") != nil {
			return false
		}
		left, err = c.remains(c.ctx, c.admin)
		return err == nil && len(left) == 0
	}); err != nil && len(left) == 0 {
		return nil, err
	}
	err = c.retried(func(ctx context.Context) error {
		found, err := c.auditLetters(ctx, c.admin)
		findings = append(left, found...)
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	findings, c.noticed = append(findings, c.noticed...), nil
	return findings, err
}

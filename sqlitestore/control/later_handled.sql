-- Reports whether the projection of dead letter ?2 has handled a later event of its stream, so that a replay would be out of order. That is an
-- event of the tenant ?1 up to position ?3, of one of the types ?4 (JSON, null: any), that is not parked. If ?5 is set, the stream is parked: all
-- events from the first that is blocked by an earlier one are parked, or were discarded, so it reads only those before that. If the stream has
-- more than 10,000 later events up to there, it reads no more, and reports true. Indexes: the primary keys, that of tenants by name, those
-- of events by stream, and of dead letters by position and by stream. It scans the one dead letter. Locks nothing.
with l as materialized (
    select t.id as tenant, x.projection, x.stream_id, x.version,
           min(?3, coalesce((select d.position - 1 from millrace_dead_letters d
                              where ?5 and d.projection = x.projection and d.stream_id = x.stream_id
                              and d.state in ('parked', 'replaying') and d.position >= x.position and d.blocked_by_stream = 1
                              order by d.position limit 1), ?3)) as upto
    from millrace_tenants t cross join millrace_dead_letters x where t.name = ?1 and x.id = ?2)
select exists (select 1 from millrace_events e
                where e.tenant = l.tenant and e.stream_id = l.stream_id and e.version > l.version and e.version <= l.version + 10000
                and e.position <= l.upto and (?4 is null or e.type in (select value from json_each(?4)))
                and not exists (select 1 from millrace_dead_letters d
                                 where d.projection = l.projection and d.position = e.position
                                 and (d.state in ('parked', 'replaying') or ?5 and d.state = 'discarded')))
       or coalesce((select e.position <= l.upto from millrace_events e
                     where e.tenant = l.tenant and e.stream_id = l.stream_id and e.version > l.version + 10000 order by e.version limit 1), 0)
from l

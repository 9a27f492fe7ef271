-- Returns the oldest open command of projection ?1, discards first, since a discard may be meant to end a replay. If
-- ?2 is set, replays are left out, except those at their limit, which only have to end. It also returns how many events
-- are parked, and whether streams are. Indexes: that of open commands, the primary keys of projections and parked
-- streams. Locks nothing.
select coalesce(c.id, 0), coalesce(c.kind = 'replay', 0), p.parked,
       exists (select 1 from millrace_parked_streams s where s.projection = p.id)
from millrace_projections p
left join millrace_commands c on c.id = coalesce(
    (select min(d.id) from millrace_commands d where d.projection = ?1 and d.ended_at is null and d.kind = 'discard'),
    (select min(r.id) from millrace_commands r where r.projection = ?1 and r.ended_at is null and (not ?2 or r.done + r.failed >= r.max_events)))
where p.id = ?1

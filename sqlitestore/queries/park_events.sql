-- Parks events of a projection. If ?3 is false: one event that failed. If ?3 is true: events that are blocked by an
-- earlier event of their stream. That stream may have been released since the caller checked, by a replay whose answer
-- was lost. Then its first event is marked as not blocked. If the checkpoint was set back, an event that was parked
-- before is parked again. If ?3 is true, an event that is still parked is not changed. ?1 projection, ?2 events as
-- JSON: a list of [position, stream, version, type], ?4 error, ?5 stack, ?6 attempts, ?7 now. Lock: that of the file's
-- writer. Indexes: the primary keys, and those of dead letters by position and by stream.
with e as (select value ->> 0 as position, value ->> 1 as stream, value ->> 2 as version, value ->> 3 as type from json_each(?2))
insert into millrace_dead_letters
(projection, position, stream_id, version, type, blocked_by_stream, error, stack, attempts, first_failed_at, last_failed_at)
select p.id, e.position, e.stream, e.version, e.type,
?3 and (exists (select 1 from millrace_dead_letters x
where x.projection = p.id and x.stream_id = e.stream and x.position < e.position and x.state in ('parked', 'replaying'))
or exists (select 1 from e as x where x.stream = e.stream and x.position < e.position)),
?4, ?5, ?6, coalesce(case when p.failing_position = e.position then p.failing_since end, ?7), ?7
from e cross join millrace_projections p where p.id = ?1
on conflict (projection, position) do update
set blocked_by_stream = excluded.blocked_by_stream, state = 'parked', error = excluded.error, stack = excluded.stack,
open_replays = 0, replays = 0, attempts = excluded.attempts, last_failed_at = excluded.last_failed_at, ended_at = null,
first_failed_at = case when millrace_dead_letters.ended_at is null then millrace_dead_letters.first_failed_at else excluded.first_failed_at end
where not ?3 or millrace_dead_letters.state not in ('parked', 'replaying')

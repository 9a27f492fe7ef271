-- Parks an event of projection ?1 that failed. With ?6 it parks events that are blocked by an earlier event of their stream. That
-- stream may have been released since the caller checked, by a replay whose answer was lost. Then its first event is marked as
-- not blocked. If the checkpoint was set back, an event that was parked before is parked again. With ?6, an event that is still
-- parked is not changed. ?2 to ?5 positions, streams, versions and types (JSON), ?7 error, ?8 stack, ?9 attempts, :now. Lock: that
-- of the file's writer. Indexes: the primary keys, and those of dead letters by position and by stream. It scans the
-- lists.
with streams as materialized (select key, value from json_each(?3)), versions as materialized (select key, value from json_each(?4)),
types as materialized (select key, value from json_each(?5)),
e as materialized (select p.value as position, streams.value as stream, versions.value as version, types.value as type
from json_each(?2) p cross join streams on streams.key = p.key cross join versions on versions.key = p.key
cross join types on types.key = p.key)
insert into millrace_dead_letters
(projection, position, stream_id, version, type, blocked_by_stream, error, stack, attempts, first_failed_at, last_failed_at)
select p.id, e.position, e.stream, e.version, e.type,
?6 and (exists (select 1 from millrace_dead_letters x
where x.projection = p.id and x.stream_id = e.stream and x.position < e.position and x.state in ('parked', 'replaying'))
or exists (select 1 from e as x where x.stream = e.stream and x.position < e.position)),
?7, ?8, ?9, coalesce(case when p.failing_position = e.position then p.failing_since end, :now), :now
from e cross join millrace_projections p where p.id = ?1
on conflict (projection, position) do update
set stream_id = excluded.stream_id, version = excluded.version, type = excluded.type,
blocked_by_stream = excluded.blocked_by_stream, state = 'parked', error = excluded.error, stack = excluded.stack,
open_replays = 0, replays = 0, attempts = excluded.attempts, last_failed_at = excluded.last_failed_at, ended_at = null,
first_failed_at = case when millrace_dead_letters.ended_at is null then millrace_dead_letters.first_failed_at else excluded.first_failed_at end
where not ?6 or millrace_dead_letters.state not in ('parked', 'replaying')

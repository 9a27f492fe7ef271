-- Returns the dead letters of the tenant ?1 after projection ?2 and position ?3, at most ?4, in order. The columns are
-- those of transfer.DeadLetters. Index: that by projection and position. Locks nothing.
select projection, position, id, stream_id, version, type, blocked_by_stream, state, error, stack, attempts, replays, open_replays,
       last_command, first_failed_at, last_failed_at, ended_at
from millrace_dead_letters
where projection in (select p.id from millrace_projections p where p.tenant = (select id from millrace_tenants where name = ?1))
  and (projection, position) > (?2, ?3) order by projection, position limit ?4

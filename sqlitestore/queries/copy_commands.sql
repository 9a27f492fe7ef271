-- Returns the commands of the tenant ?1 after projection ?2 and id ?3, at most ?4, in order. The columns are those of
-- transfer.Commands. Index: that by projection and end. It sorts the commands of the tenant. Locks nothing.
select projection, id, root, kind, dead_letter_ids, stream_id, type, error, max_events, current_stream, after_position, done, failed,
       current_dead_letter, created_at, ended_at
from millrace_commands
where projection in (select p.id from millrace_projections p where p.tenant = (select id from millrace_tenants where name = ?1))
  and (projection, id) > (?2, ?3) order by projection, id limit ?4

-- Ends command $1 of projection $3 of tenant $2 for all of its partitions, after lock_command.sql. A partition that has
-- begun a replay or is inside a parked stream continues until the owner of its lease ends the command, as at its limit.
-- Returns the projections, and whether the command ended there. Indexes: commands_pkey, commands_root_idx, projections_pkey.
-- Locks: the rows of the command until the commit.
update {control}.commands as c
   set max_events = c.done + c.failed,
       ended_at = case when c.current_stream is null and c.current_dead_letter is null then {now} end
 where (c.id = $1::bigint or c.root = $1::bigint) and c.ended_at is null
   and (select p.tenant = {tenant_id $2::text} and p.name = $3::text from {control}.projections p where p.id = c.{projection})
returning {projection}, ended_at is not null

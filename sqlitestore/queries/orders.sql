-- Returns the desired states of the projections ?1, a JSON array, and of those whose leases the node ?2 holds, and whether
-- they have open commands. Projections that should run and have none are left out. Indexes: leases by owner, open
-- commands, and primary keys. Locks nothing.
select p.id, case when p.suspended then 'pause' else p.desired_state end,
       exists (select 1 from millrace_commands c where c.projection = p.id and c.ended_at is null) as has_commands
from millrace_projections p
where p.id in (select value from json_each(?1) union all select id from millrace_leases where owner = ?2)
  and (p.suspended or p.desired_state <> 'run' or exists (select 1 from millrace_commands c where c.projection = p.id and c.ended_at is null))

-- Returns the rows of command ?1: its projection, whether it ended, the result so far, and whether it could run now
-- without an owner, as fence_unowned.sql says. ?2 tenant, ?3 projection, ?4 the living node. If the number of
-- partitions has changed since, the rows of a command for one partition may belong to others. Indexes: those of commands
-- by id and root, of tenants, projections and leases by id. Locks nothing.
select c.id, c.projection, c.ended_at is not null, c.done, c.failed,
       (c.kind = 'discard' or c.done + c.failed >= c.max_events)
       and exists (select 1 from millrace_leases l where l.id = c.projection and (l.owner is null or l.owner <> ?4))
from millrace_commands c
where (c.id = ?1 or c.root = ?1)
and exists (select 1 from millrace_projections p join millrace_tenants t on t.id = p.tenant
             where p.id = c.projection and t.name = ?2 and p.name = ?3)

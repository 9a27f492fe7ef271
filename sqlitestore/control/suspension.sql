-- Returns whether tenant ?1 is suspended, whether the living node :living has leases of it, and whether dead nodes have.
-- Indexes: that of tenants by name, that of projections by tenant, the primary key of leases. Locks nothing.
select t.state <> 'active' or t.paused,
       exists (select 1 from millrace_projections p cross join millrace_leases l on l.id = p.id
                where p.tenant = t.id and l.owner = :living),
       exists (select 1 from millrace_projections p cross join millrace_leases l on l.id = p.id
                where p.tenant = t.id and l.owner <> :living)
from millrace_tenants t where t.name = ?1

-- Returns whether each partition of projections is stopped, and its owner. It is stopped if the operation ?3 holds it or,
-- where ?3 is null, if it is paused. ?1 tenant, ?2 names, a JSON array. Indexes: tenants by name, projections by tenant,
-- the primary key of leases. Locks nothing.
select case when ?3 is null then p.desired_state = 'pause' else coalesce(p.held_by = ?3, 0) end, coalesce(l.owner, '')
from millrace_tenants t cross join millrace_projections p on p.tenant = t.id cross join millrace_leases l on l.id = p.id
where t.name = ?1 and p.name in (select value from json_each(?2))

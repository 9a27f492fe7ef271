-- Returns the desired state and the owner of each partition of a projection. ?1 tenant, ?2 projection. Indexes: tenants by
-- name, projections by tenant, the primary key of leases. Locks nothing.
select p.desired_state, coalesce(l.owner, '')
from millrace_tenants t cross join millrace_projections p on p.tenant = t.id cross join millrace_leases l on l.id = p.id
where t.name = ?1 and p.name = ?2

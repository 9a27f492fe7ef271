-- Returns the partitions of projection ?2 of tenant ?1: row, checkpoint, epoch, owner, whether it delivers, and the operation that
-- holds it, 0 for none. Indexes: tenants by name, projections by tenant, the primary key of leases. Locks nothing.
select p.id, l.checkpoint, l.epoch, coalesce(l.owner, ''), p.delivers, coalesce(p.held_by, 0)
from millrace_tenants t cross join millrace_projections p on p.tenant = t.id cross join millrace_leases l on l.id = p.id
where t.name = ?1 and p.name = ?2

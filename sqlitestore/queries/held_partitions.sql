-- Returns the partitions of the projections ?2 (JSON) of tenant ?1: the name, the checkpoint, the epoch, and whether operation ?3 holds
-- the partition and it has no owner. Indexes: tenants by name, projections by tenant, the primary key of leases. Locks
-- nothing.
select p.id, p.name, l.checkpoint, l.epoch, coalesce(p.held_by = ?3, 0) and l.owner is null
from millrace_tenants t cross join millrace_projections p on p.tenant = t.id cross join millrace_leases l on l.id = p.id
where t.name = ?1 and p.name in (select value from json_each(?2))

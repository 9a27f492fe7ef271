-- Returns the partitions of the projections ?2 (JSON) of tenant ?1: row, name, checkpoint, epoch, whether the living node :living
-- holds the lease, whether a dead one does, whether it delivers, and the operation that holds it, 0 for none. Indexes: tenants by
-- name, projections by tenant, the primary key of leases. Locks nothing: the file has one writer.
select p.id, p.name, l.checkpoint, l.epoch, coalesce(l.owner = :living, 0), coalesce(l.owner <> :living, 0), p.delivers, coalesce(p.held_by, 0)
from millrace_tenants t cross join millrace_projections p on p.tenant = t.id cross join millrace_leases l on l.id = p.id
where t.name = ?1 and p.name in (select value from json_each(?2))

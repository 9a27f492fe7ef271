-- Returns the partitions of the projections of tenant ?1: row, name, whether it delivers, whether it or its tenant is paused,
-- whether the living node :living holds the lease, whether it has stopped, and why, its checkpoint, and the highest position that it
-- has handled. Indexes: tenants by name, projections by tenant, the primary key of leases. Locks nothing.
select p.id, p.name, p.delivers, p.tenant_suspended or p.desired_state = 'pause', coalesce(l.owner = :living, 0), p.halted, coalesce(p.failed_reason, ''), l.checkpoint,
       max(l.checkpoint, coalesce((select max(value ->> 2) from json_each(p.passed)), 0))
from millrace_tenants t cross join millrace_projections p on p.tenant = t.id cross join millrace_leases l on l.id = p.id
where t.name = ?1
order by p.name, p.partition

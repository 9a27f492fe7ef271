-- Returns the partitions of the projections ?2, a JSON array, of the tenant ?1 with the highest position up to which each may
-- have handled events. Indexes: those of tenants by name and of projections by tenant, and the primary key of leases. Locks
-- nothing.
select p.id, p.name, p.slot_from, p.slot_to, l.checkpoint,
       max(l.checkpoint, coalesce((select max(json_extract(value, '$[2]')) from json_each(p.passed)), 0)),
       p.desired_state <> 'run' or p.tenant_suspended,
       coalesce(case when p.halted or p.failed_epoch = l.epoch then p.failed_reason end, ''), p.parked
from millrace_tenants t
join millrace_projections p on p.tenant = t.id and p.name in (select value from json_each(?2))
join millrace_leases l on l.id = p.id
where t.name = ?1
order by p.name, p.partition

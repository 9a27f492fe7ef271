-- Returns the leases ?1, a JSON array, and those that the node ?2 holds. Indexes: leases by owner, and primary keys. Locks
-- nothing.
select l.id, p.tenant, t.name, p.name, p.partition, p.partitions, p.slot_from, p.slot_to, p.passed, coalesce(l.owner, ''), l.epoch, l.checkpoint,
       l.crash_count, case when p.suspended then 'pause' else p.desired_state end, p.attempts, p.failing_position,
       coalesce(case when p.halted or p.failed_epoch = l.epoch then p.failed_reason end, ''), p.halted,
       coalesce(case when p.crash_attempts > 0 then p.crash_since end, p.failing_since), p.crash_position, p.crash_attempts, p.parked,
       exists (select 1 from millrace_parked_streams s where s.projection = l.id),
       exists (select 1 from millrace_commands c where c.projection = l.id and c.ended_at is null)
from millrace_leases l
cross join millrace_projections p on p.id = l.id
cross join millrace_tenants t on t.id = p.tenant
where l.id in (select value from json_each(?1) union all select id from millrace_leases where owner = ?2)

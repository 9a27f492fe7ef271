-- Returns the partitions of the projection ?2 of the tenant number ?1. Indexes: that of projections by tenant, and the
-- primary key of leases. Locks nothing.
select p.id, p.slot_from, p.slot_to, p.passed, l.checkpoint, l.crash_count, p.skipped, p.halted,
       p.failing_position, p.attempts, p.crash_position, p.crash_attempts, coalesce(l.owner, '')
from millrace_projections p join millrace_leases l on l.id = p.id
where p.tenant = ?1 and p.name = ?2

-- Returns the projections of the tenant ?1 after id ?2, at most ?3, in order. The columns are those of
-- transfer.Projections. In PostgreSQL, a checkpoint above the last event would mean that events were lost. Here it means
-- that the last events were deleted, so checkpoint, passed and rebuild_to end at the last event that is left. It sorts the projections
-- of the tenant, and the subquery that it scans has one row. Indexes: that by tenant,
-- and the primary key of events. Locks nothing.
with t as materialized (
    select id, coalesce((select max(e.id) from millrace_events e where e.id > t.id << 40 and e.id < (t.id + 1) << 40) & 1099511627775, 0) as last
    from millrace_tenants t where name = ?1
)
select p.id, p.name, p.partition, p.partitions, p.slot_from, p.slot_to,
       (select json_group_array(json_array(x.value ->> 0, x.value ->> 1, min(x.value ->> 2, t.last)) order by x.key) from json_each(p.passed) x),
       p.token, p.desired_state, p.failed_reason, p.failed_epoch, p.halted, p.skipped, p.parked,
       p.failing_position, p.attempts, p.crash_position, p.crash_attempts, p.crash_since, p.failing_since,
       p.last_error, p.last_error_at, p.missing_object, p.delivers, p.rebuild_since, p.rebuild_from, min(p.rebuild_to, t.last), l.epoch, min(l.checkpoint, t.last), l.crash_count
from t join millrace_projections p on p.tenant = t.id join millrace_leases l on l.id = p.id
where p.id > ?2 order by p.id limit ?3

-- Returns the partitions of the projections ?2 (JSON) of tenant ?1: row and name; slots, and the handled ones in three lists;
-- checkpoint, epoch and crash_count; what is known of events; whether the living node :living holds the lease, whether a dead one
-- does, whether it delivers, and the operation that holds it, 0 for none. Indexes: tenants by name, projections by tenant, the
-- primary key of leases. Locks nothing: the file has one writer.
select p.id, p.name, p.slot_from, p.slot_to,
       (select json_group_array(value ->> 0) from json_each(p.passed)), (select json_group_array(value ->> 1) from json_each(p.passed)),
       (select json_group_array(value ->> 2) from json_each(p.passed)), l.checkpoint, l.epoch, l.crash_count,
       p.skipped, p.halted, p.failing_position, p.attempts, p.crash_position, p.crash_attempts,
       coalesce(l.owner = :living, 0), coalesce(l.owner <> :living, 0), p.delivers, coalesce(p.held_by, 0)
from millrace_tenants t cross join millrace_projections p on p.tenant = t.id cross join millrace_leases l on l.id = p.id
where t.name = ?1 and p.name in (select value from json_each(?2))

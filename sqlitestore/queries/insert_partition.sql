-- Inserts one partition of a projection. ?1 is a previous partition of it. ?2 the partition's number, ?3 how many
-- partitions there are, ?4 and ?5 slots, ?6 handled slots, ?7 skipped. Each of ?8 to ?10 is a previous partition, or
-- null: ?8 has the failing event, ?9 the event at which processes may have crashed, with ?11 attempts, and ?10 is halted.
-- Index: the primary key. Lock: that of the file's writer.
insert into millrace_projections
    (tenant, name, partition, partitions, slot_from, slot_to, passed, token, desired_state, tenant_suspended, held_by,
     delivers, rebuild_since, rebuild_from, rebuild_to, skipped,
     failing_position, attempts, failing_since, last_error, last_error_at, missing_object,
     crash_position, crash_attempts, crash_since, halted, failed_reason)
select p.tenant, p.name, ?2, ?3, ?4, ?5, ?6, p.token, p.desired_state, p.tenant_suspended, p.held_by,
       p.delivers, p.rebuild_since, p.rebuild_from, p.rebuild_to, ?7,
       coalesce(f.failing_position, 0), coalesce(f.attempts, 0), f.failing_since, f.last_error, f.last_error_at, coalesce(f.missing_object, 0),
       coalesce(c.crash_position, 0), case when c.id is null then 0 else ?11 end, c.crash_since, h.id is not null, h.failed_reason
from millrace_projections p
left join millrace_projections f on f.id = ?8
left join millrace_projections c on c.id = ?9
left join millrace_projections h on h.id = ?10
where p.id = ?1
returning id

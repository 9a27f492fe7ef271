-- Inserts one partition of a projection, and returns its row. ?1 is a previous partition of it. ?2 the partition's number, ?3 how many
-- partitions there are, ?4 and ?5 slots, ?6 to ?8 (JSON) handled slots, ?9 skipped. Each of ?10 to ?12 is a previous partition, or
-- null: ?10 has the failing event, ?11 the event at which processes may have crashed, with ?13 attempts, and ?12 is halted. Index: the
-- primary key. Lock: that of the file's writer.
insert into millrace_projections
    (tenant, name, partition, partitions, slot_from, slot_to, passed, token, desired_state, tenant_suspended, held_by,
     delivers, rebuild_since, rebuild_from, rebuild_to, skipped,
     failing_position, attempts, failing_since, last_error, last_error_at, missing_object,
     crash_position, crash_attempts, crash_since, halted, failed_reason)
select p.tenant, p.name, ?2, ?3, ?4, ?5,
       (select json_group_array(json_array(f.value, t.value, u.value))
        from json_each(?6) f cross join json_each(?7) t on t.key = f.key cross join json_each(?8) u on u.key = f.key),
       p.token, p.desired_state, p.tenant_suspended, p.held_by,
       p.delivers, p.rebuild_since, p.rebuild_from, p.rebuild_to, ?9,
       coalesce(f.failing_position, 0), coalesce(f.attempts, 0), f.failing_since, f.last_error, f.last_error_at, coalesce(f.missing_object, 0),
       coalesce(c.crash_position, 0), case when c.id is null then 0 else ?13 end, c.crash_since, h.id is not null, h.failed_reason
from millrace_projections p
left join millrace_projections f on f.id = ?10
left join millrace_projections c on c.id = ?11
left join millrace_projections h on h.id = ?12
where p.id = ?1
returning id

-- Inserts one partition of a projection, and returns its row. $1 is a previous partition of it. $2 the partition's number, $3 how many
-- partitions there are, $4 and $5 slots, $6 to $8 handled slots, $9 skipped. Each of $10 to $12 is a previous partition, or null:
-- $10 has the failing event, $11 the event at which processes may have crashed, with $13 attempts, and $12 is halted. Indexes:
-- projections_pkey, projections_tenant_name_partition_key. Lock: the new row.
insert into {control}.projections
    (tenant, name, partition, partitions, slot_from, slot_to, passed_from, passed_to, passed_upto, token, desired_state, tenant_suspended, held_by,
     delivers, rebuild_since, rebuild_from, rebuild_to, skipped,
     failing_position, attempts, failing_since, last_error, last_error_at, missing_object,
     crash_position, crash_attempts, crash_since, halted, failed_reason)
select p.tenant, p.name, $2::integer, $3::integer, $4::integer, $5::integer, $6::integer[], $7::integer[], $8::bigint[],
       p.token, p.desired_state, p.tenant_suspended, p.held_by,
       p.delivers, p.rebuild_since, p.rebuild_from, p.rebuild_to, $9::bigint,
       coalesce(f.failing_position, 0), coalesce(f.attempts, 0), f.failing_since, f.last_error, f.last_error_at, coalesce(f.missing_object, false),
       coalesce(c.crash_position, 0), case when c.id is null then 0 else $13::integer end, c.crash_since, h.id is not null, h.failed_reason
  from {control}.projections p
  left join {control}.projections f on f.id = $10::integer
  left join {control}.projections c on c.id = $11::integer
  left join {control}.projections h on h.id = $12::integer
 where p.id = $1::integer
returning id

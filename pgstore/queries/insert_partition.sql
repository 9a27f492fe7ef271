-- Inserts one partition of a projection, and its free lease, which sleeps if the tenant is suspended. $1 is a previous
-- partition of the projection. $2 the partition's number, $3 how many partitions there are, $4 and $5 slots, $6 to $8
-- handled slots, $9 checkpoint, $10 crash_count, $11 skipped. Each of $12 to $14 is a previous partition, or null: $12
-- has the failing event, $13 the event at which processes may have crashed, with $15 attempts, and $14 is halted.
-- Indexes: projections_pkey, projections_tenant_name_partition_key, leases_pkey. Locks: the new rows.
with inserted as (
    insert into {control}.projections
        (tenant, name, partition, partitions, slot_from, slot_to, passed_from, passed_to, passed_upto, token, desired_state, tenant_suspended, held_by,
         delivers, rebuild_since, rebuild_from, rebuild_to, skipped,
         failing_position, attempts, failing_since, last_error, last_error_at, missing_object,
         crash_position, crash_attempts, crash_since, halted, failed_reason)
    select p.tenant, p.name, $2::integer, $3::integer, $4::integer, $5::integer, $6::integer[], $7::integer[], $8::bigint[],
           p.token, p.desired_state, p.tenant_suspended, p.held_by,
           p.delivers, p.rebuild_since, p.rebuild_from, p.rebuild_to, $11::bigint,
           coalesce(f.failing_position, 0), coalesce(f.attempts, 0), f.failing_since, f.last_error, f.last_error_at, coalesce(f.missing_object, false),
           coalesce(c.crash_position, 0), case when c.id is null then 0 else $15::integer end, c.crash_since, h.id is not null, h.failed_reason
      from {control}.projections p
      left join {control}.projections f on f.id = $12::integer
      left join {control}.projections c on c.id = $13::integer
      left join {control}.projections h on h.id = $14::integer
     where p.id = $1::integer
    returning id, tenant_suspended
)
insert into {control}.leases (id, checkpoint, crash_count, asleep) select i.id, $9::bigint, $10::integer, i.tenant_suspended from inserted i
returning id

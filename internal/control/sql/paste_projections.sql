-- Inserts the rows $2 of copy_projections.sql into tenant $1, without leases. Until the state of the tenant is set, they are suspended.
-- Index: projections_tenant_name_partition_key. Locks: the new rows, and their tenant FOR KEY SHARE.
insert into {control}.projections
    (tenant, name, partition, partitions, slot_from, slot_to, {passed_columns}, token, desired_state, tenant_suspended, delivers, failed_reason,
     failed_epoch, halted, skipped, parked, failing_position, attempts, crash_position, crash_attempts, crash_since, failing_since, last_error,
     last_error_at, next_attempt_at, missing_object, rebuild_since, rebuild_from, rebuild_to)
select {tenant_id $1::text}, list.value->>'name', (list.value->>'partition')::integer, (list.value->>'partitions')::integer,
       (list.value->>'from')::integer, (list.value->>'to')::integer, {passed_values}, (list.value->>'token')::uuid, list.value->>'desired', true,
       (list.value->>'delivers')::integer::boolean, list.value->>'reason', (list.value->>'failed')::bigint, (list.value->>'halted')::integer::boolean,
       (list.value->>'skipped')::bigint, (list.value->>'parked')::bigint, (list.value->>'failing')::bigint, (list.value->>'attempts')::integer,
       (list.value->>'crashed')::bigint, (list.value->>'crashes')::integer, {time list.value->>'crashing since'}, {time list.value->>'failing since'},
       list.value->>'error', {time list.value->>'error at'}, {time list.value->>'next'}, (list.value->>'missing')::integer::boolean,
       {time list.value->>'rebuilt since'}, (list.value->>'rebuilt from')::bigint, (list.value->>'rebuilt to')::bigint
  from {objects $2::jsonb}

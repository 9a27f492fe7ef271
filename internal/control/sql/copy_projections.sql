-- Returns the projections of tenant $1 with their leases, as JSON objects, in order. Indexes: projections_tenant_name_partition_key,
-- leases_pkey. Locks nothing.
select {object 'name', p.name, 'partition', p.partition, 'partitions', p.partitions, 'from', p.slot_from, 'to', p.slot_to, 'passed', {passed p},
       'token', p.token, 'desired', p.desired_state, 'delivers', p.delivers::integer, 'reason', p.failed_reason, 'failed', p.failed_epoch,
       'halted', p.halted::integer, 'skipped', p.skipped, 'parked', p.parked, 'failing', p.failing_position, 'attempts', p.attempts,
       'crashed', p.crash_position, 'crashes', p.crash_attempts, 'crashing since', {micros p.crash_since}, 'failing since', {micros p.failing_since},
       'error', p.last_error, 'error at', {micros p.last_error_at}, 'next', {micros p.next_attempt_at}, 'missing', p.missing_object::integer,
       'rebuilt since', {micros p.rebuild_since}, 'rebuilt from', p.rebuild_from, 'rebuilt to', p.rebuild_to,
       'epoch', l.epoch, 'checkpoint', l.checkpoint, 'crash count', l.crash_count}
  from {control}.projections p join {control}.leases l on l.id = p.id
 where p.tenant = {tenant_id $1::text} order by p.name, p.partition

-- The columns of a lease, in the order in which leaseFrom scans them: a part of leases.sql and owned_leases.sql. l is
-- the row of leases, p that of projections. With "limit 1", the planner does not scan parked_streams from its
-- beginning, where most rows may be another projection's. Locks nothing. Indexes: parked_streams_pkey,
-- commands_projection_id_id_idx, tenants_pkey.
l.id, p.tenant, p.name, p.partition, p.partitions, p.slot_from, p.slot_to, p.passed_from, p.passed_to, p.passed_upto, coalesce(l.owner::text, ''), l.epoch, l.checkpoint, l.crash_count,
       case when p.suspended then 'pause' else p.desired_state end, p.attempts,
       p.failing_position, coalesce(case when p.halted or p.failed_epoch = l.epoch then p.failed_reason end, ''),
       p.halted, coalesce(case when p.crash_attempts > 0 then p.crash_since end, p.failing_since),
       p.crash_position, p.crash_attempts, p.parked,
       (select true from {control}.parked_streams s where s.projection_id = l.id order by s.stream_id limit 1) is not null,
       exists (select from {control}.commands c where c.projection_id = l.id and c.ended_at is null),
       (select t.id from {control}.tenants t where t.tenant = p.tenant)

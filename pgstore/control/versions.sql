-- Returns the partitions of the projections $2 of tenant $1 with the highest position up to which each may have handled
-- events. Indexes: projections_tenant_name_partition_key, leases_pkey. Locks nothing.
select p.id, p.name, p.slot_from, p.slot_to, l.checkpoint,
       greatest(l.checkpoint, (select max(upto) from unnest(p.passed_upto) upto)), p.desired_state <> 'run' or p.tenant_suspended,
       coalesce(case when p.halted or p.failed_epoch = l.epoch then p.failed_reason end, ''), p.parked
  from {control}.projections p join {control}.leases l on l.id = p.id
 where p.tenant = $1::text and p.name = any($2::text[])
 order by p.name, p.partition

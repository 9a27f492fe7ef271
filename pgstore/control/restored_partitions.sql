-- Returns the partitions of the projections of tenant $1: row, name, whether it delivers, whether it or its tenant is paused,
-- whether a living node holds the lease, whether it has stopped, and why, its checkpoint, and the highest position that it has
-- handled. Indexes: projections_tenant_name_partition_key, leases_pkey, nodes_pkey. Locks nothing.
select p.id, p.name, p.delivers, p.tenant_suspended or p.desired_state = 'pause',
       l.owner is not null and exists (select from {control}.nodes n where n.id = l.owner and n.expires_at > clock_timestamp()), p.halted, coalesce(p.failed_reason, ''), l.checkpoint,
       greatest(l.checkpoint, (select max(u.position) from unnest(p.passed_upto) as u(position)))
  from {control}.projections p join {control}.leases l on l.id = p.id
 where p.tenant = $1::text
 order by p.name, p.partition

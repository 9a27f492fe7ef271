-- Returns every projection of the tenants $1, with its lease and the number and age of its parked events. For many
-- tenants it scans leases. Indexes: tenants_pkey, projections_tenant_name_partition_key, nodes_pkey,
-- dead_letters_projection_id_position_idx. Locks nothing.
select p.tenant, p.name, p.partition, p.partitions, case when p.suspended then 'pause' else p.desired_state end,
       case when t.state = 'active' and t.paused then 'paused' else t.state end, coalesce(case when p.halted or p.failed_epoch = l.epoch then p.failed_reason end, ''),
       p.halted, p.skipped, p.failing_position, p.attempts, p.missing_object, coalesce(p.last_error, ''),
       coalesce(l.owner::text, ''), l.epoch, l.checkpoint, p.parked, d.oldest,
       coalesce(n.expires_at > clock_timestamp(), false) as owner_alive,
       coalesce(extract(epoch from clock_timestamp() - case when l.owner is null then l.free_since else n.expires_at end), 0)::float8
           as not_owned
  from {control}.projections p
  join {control}.leases l on l.id = p.id
  join {control}.tenants t on t.tenant = p.tenant
  left join {control}.nodes n on n.id = l.owner
  left join lateral (select first_failed_at as oldest from {control}.dead_letters d
                      where p.parked > 0 and d.projection_id = p.id and d.state in ('parked', 'replaying')
                      order by d.position limit 1) d on true
 where p.tenant = any($1::text[])
 order by p.tenant, p.name, p.partition

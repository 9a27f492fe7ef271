-- Inserts the free lease of the partition with the number $2 of the projection of which $1 is a partition. $3 checkpoint, $4
-- crash_count. It sleeps if the tenant is suspended. Indexes: projections_pkey, projections_tenant_name_partition_key, leases_pkey.
-- Lock: the new row.
insert into {control}.leases (id, checkpoint, crash_count, asleep)
select p.id, $3::bigint, $4::integer, p.tenant_suspended
  from {control}.projections x join {control}.projections p on p.tenant = x.tenant and p.name = x.name and p.partition = $2::integer
 where x.id = $1::integer

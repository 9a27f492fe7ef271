-- Locks the partitions of the projections $2 of tenant $1 with their leases, so that no checkpoint moves. Locks, until the
-- commit: the rows of projections and leases FOR UPDATE. So it waits for commits of batches, but not for handlers.
-- Indexes: projections_tenant_name_partition_key, leases_pkey.
select p.id
  from {control}.projections p join {control}.leases l on l.id = p.id
 where p.tenant = $1::text and p.name = any($2::text[])
 order by p.id
   for update of p, l

-- Marks the free leases of tenant $1 as asleep while the tenant, which is locked, is suspended. Locks: the rows of
-- leases FOR NO KEY UPDATE until the commit. Indexes: projections_tenant_name_partition_key, leases_pkey.
update {control}.leases l set asleep = true
  from {control}.projections p
 where p.tenant = $1::text and p.tenant_suspended and l.id = p.id and l.owner is null and not l.asleep

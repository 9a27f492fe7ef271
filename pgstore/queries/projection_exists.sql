-- Reports whether tenant $1 exists, whether it has the projection $2 with partition $3 (0: any), and why the name is
-- retired, if it is. Indexes: tenants_pkey, projections_tenant_name_partition_key, retired_projections_pkey. Locks
-- nothing.
select exists (select from {control}.tenants where tenant = $1),
       exists (select from {control}.projections where tenant = $1 and name = $2 and ($3 = 0 or partition = $3)),
       coalesce(x.reason, ''), coalesce(x.successor, '')
  from (select) as one
  left join {control}.retired_projections x on x.tenant = $1 and x.name = $2

-- Reports whether tenant $1 exists, whether it has the projection $2 with partition $3 (0: any), and why the name is
-- retired, if it is. Indexes: tenants_pkey, projections_tenant_name_partition_key, retired_projections_pkey. Locks
-- nothing.
select exists (select 1 from {control}.tenants t where t.{tenant_name} = $1::text),
       exists (select 1 from {control}.projections p
                where p.tenant = {tenant_id $1::text} and p.name = $2::text and ($3::integer = 0 or p.partition = $3::integer)),
       coalesce(x.reason, ''), coalesce(x.successor, '')
  from (select 1) as one
  left join {control}.retired_projections x on x.tenant = {tenant_id $1::text} and x.name = $2::text

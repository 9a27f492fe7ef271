-- Retires the earlier versions $3 of a projection, since tenant $1 begins with version $2. It changes nothing if one of them
-- has rows, if the version is retired, if the tenant is not active, or if the version has rows, unless $4. The caller holds the
-- structural lock of the tenant. Indexes: tenants_pkey, projections_tenant_name_partition_key, retired_projections_pkey.
-- Locks: the rows of retired_projections FOR NO KEY UPDATE until the commit.
insert into {control}.retired_projections (tenant, name, successor, reason)
select t.tenant, earlier.name, $2::text, 'unused'
  from {control}.tenants t cross join unnest($3::text[]) as earlier(name)
 where t.tenant = $1::text and t.state = 'active'
   and not exists (select from {control}.projections p where p.tenant = t.tenant and (p.name = any($3::text[]) or p.name = $2::text and not $4::boolean))
   and not exists (select from {control}.retired_projections x where x.tenant = t.tenant and x.name = $2::text)
    on conflict (tenant, name) do update set successor = excluded.successor, reason = excluded.reason, retired_at = clock_timestamp()

-- Gives stream $3 the alias $2 in tenant $1, if the tenant is active and the alias is free. Indexes: tenants_pkey, aliases_pkey.
-- Locks: the tenant's row FOR SHARE, so that it stays active until the commit. It waits for an open transaction that has inserted
-- the same alias.
insert into {control}.aliases (tenant, name, stream_id, created_at)
select {tenant_id $1::text}, $2::text, $3::text, {now}
  from {control}.tenants t where t.{tenant_name} = $1::text and t.state = 'active' {lock for share}
    on conflict do nothing

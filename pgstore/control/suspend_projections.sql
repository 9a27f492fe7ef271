-- Suspends the projections of tenant $1, which is locked, or ends their suspension, by the state of the tenant. Leases that slept
-- meanwhile can be claimed again. Indexes: tenants_pkey, projections_tenant_name_partition_key, leases_pkey. Locks: the rows
-- of projections and of sleeping leases FOR NO KEY UPDATE until the commit.
with t as (
    select tenant, state <> 'active' or paused as suspended from {control}.tenants where tenant = $1::text
), l as (
    update {control}.leases l set asleep = false
      from t join {control}.projections p on p.tenant = t.tenant
     where not t.suspended and l.id = p.id and l.asleep
)
update {control}.projections p set tenant_suspended = t.suspended from t where p.tenant = t.tenant and p.tenant_suspended <> t.suspended

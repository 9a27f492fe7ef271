-- Sets whether a tenant is paused, suspends its projections or ends their suspension, and notifies the nodes over
-- channel $3. $1 tenant, which is locked, $2 paused. Indexes: tenants_pkey, projections_tenant_name_partition_key,
-- leases_pkey. Locks: the rows of projections and of sleeping leases FOR NO KEY UPDATE, and the queue of
-- notifications during the commit.
with t as (
    update {control}.tenants set paused = $2::boolean where tenant = $1::text
    returning tenant, state <> 'active' or paused as suspended
), p as (
    update {control}.projections p set tenant_suspended = t.suspended from t where p.tenant = t.tenant and p.tenant_suspended <> t.suspended
), l as (
    update {control}.leases l set asleep = false
      from t join {control}.projections p on p.tenant = t.tenant
     where not t.suspended and l.id = p.id and l.asleep
)
select pg_notify($3::text, 'tenant ' || tenant) from t

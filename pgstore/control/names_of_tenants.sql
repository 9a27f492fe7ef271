-- Returns the names of the projections of the tenants $1, the retired names with their reasons and successors, and the names
-- with open operations, with the reason "operation" and the kind. A row with the reason "tenant" has the key of the tenant as its name,
-- and its state. Tenants that are being dropped or copied are left out. Names and states change under the structural lock of the
-- tenants alone. Indexes: tenants_pkey, projections_tenant_name_partition_key, retired_projections_pkey, operations_open_idx. Locks
-- nothing.
select t.tenant, n.name, n.reason, n.successor
  from {control}.tenants t
 cross join lateral (
       select t.id::text as name, 'tenant' as reason, t.state as successor
       union all
       select p.name, '', '' from {control}.projections p where p.tenant = t.tenant group by p.name
       union all
       select x.name, x.reason, coalesce(x.successor, '') from {control}.retired_projections x where x.tenant = t.tenant
       union all
       select o.name, 'operation', o.kind from {control}.operations o where o.tenant = t.tenant and o.ended_at is null) n
 where t.tenant = any($1::text[]) and t.state in ('active', 'archived')

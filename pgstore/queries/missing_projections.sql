-- Returns the positions in the arrays, from 1, of the projections that have no rows. $1 tenants, $2 names, $3 the names that
-- they had in earlier releases, or empty. With them it returns why they must not be created: "waiting" if the tenant has a
-- version of the projection under the earlier name; or why the name is retired, and its successor; or where the earlier name
-- leads, if that is another projection. It runs when a node starts, and nearly always finds none. Indexes: projections_tenant_name_partition_key, or a
-- scan of projections where that is cheaper, and retired_projections_pkey. Locks nothing.
select r.place, case when {earlier} then 'waiting' else coalesce(x.reason, y.reason, '') end, coalesce(x.successor, y.successor, '')
  from unnest($1::text[], $2::text[], $3::text[]) with ordinality as r(tenant, name, renamed_from, place)
  left join {control}.retired_projections x on x.tenant = r.tenant and x.name = r.name
  left join {control}.retired_projections y on {elsewhere}
 where not exists (select from {control}.projections p where p.tenant = r.tenant and p.name = r.name)
 order by r.place

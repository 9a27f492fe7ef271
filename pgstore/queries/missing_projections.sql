-- Returns the positions in the arrays, from 1, of the projections that have no rows. $1 tenants, $2 names. It runs when
-- a node starts, and nearly always finds none. Index: projections_tenant_name_partition_key, or a scan of projections
-- where that is cheaper. Locks nothing.
select r.place
  from unnest($1::text[], $2::text[]) with ordinality as r(tenant, name, place)
 where not exists (select from {control}.projections p where p.tenant = r.tenant and p.name = r.name)
 order by r.place

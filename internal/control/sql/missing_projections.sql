-- Returns the places of those of the projections $1 that have no rows. $1 is a JSON array of objects with a place, a tenant and a name.
-- It runs when a node starts, and nearly always finds none. Index: projections_tenant_name_partition_key. Locks nothing.
select (list.value->>'place')::integer
  from {objects $1::jsonb}
 where not exists (select 1 from {control}.projections p
                    where p.tenant = {tenant_id list.value->>'tenant'} and p.name = list.value->>'name')

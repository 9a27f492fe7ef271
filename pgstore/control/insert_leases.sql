-- Inserts the leases of the projections that insert_projections.sql inserted. $1 is its argument. "offset 0" makes the rest a search in an
-- index for each row. Index: projections_tenant_name_partition_key. Locks: the new rows.
insert into {control}.leases (id, checkpoint, asleep)
select p.id, (list.value->>'checkpoint')::bigint, p.tenant_suspended
  from jsonb_array_elements($1::jsonb) as list(value)
 cross join lateral (select p.id, p.tenant_suspended from {control}.projections p
                      where p.tenant = list.value->>'tenant' and p.name = list.value->>'name' and p.partition = (list.value->>'partition')::integer
                     offset 0) p

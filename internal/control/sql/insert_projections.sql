-- Inserts rows of projections, which have none. $1 is a JSON array of objects, one for each row: see newRow. The planner does not know how
-- many rows there are. It cannot join subqueries for one value each, and so searches an index for each row, also before the tables
-- were analyzed. The caller holds the structural lock of the tenants. Index: tenants_pkey. Locks: the new rows.
insert into {control}.projections (tenant, name, partition, partitions, slot_from, slot_to, token, tenant_suspended)
select {tenant_id list.value->>'tenant'}, list.value->>'name', (list.value->>'partition')::integer, (list.value->>'partitions')::integer,
       (list.value->>'from')::integer, (list.value->>'to')::integer, (list.value->>'token')::uuid,
       (select t.paused from {control}.tenants t where t.{tenant_name} = list.value->>'tenant')
  from {objects $1::jsonb}

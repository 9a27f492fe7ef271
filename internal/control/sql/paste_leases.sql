-- Inserts the leases of the rows $2 of copy_projections.sql, whose projections tenant $1 has. They have no owner. Index:
-- projections_tenant_name_partition_key. Locks: the new rows, and their projections FOR KEY SHARE.
insert into {control}.leases (id, epoch, checkpoint, crash_count, free_since)
select (select p.id from {control}.projections p where p.tenant = {tenant_id $1::text} and p.name = list.value->>'name'
                                                    and p.partition = (list.value->>'partition')::integer),
       (list.value->>'epoch')::bigint, (list.value->>'checkpoint')::bigint, (list.value->>'crash count')::integer, {now}
  from {objects $2::jsonb}

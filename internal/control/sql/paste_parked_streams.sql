-- Inserts the rows $2 of copy_parked_streams.sql into tenant $1. It adds $3 to the ids of commands. Indexes:
-- projections_tenant_name_partition_key, parked_streams_pkey. Locks: the new rows, and their projections FOR KEY SHARE.
insert into {control}.parked_streams ({projection}, stream_id, last_command)
select (select p.id from {control}.projections p where p.tenant = {tenant_id $1::text} and p.name = list.value->>'name'
                                                    and p.partition = (list.value->>'partition')::integer),
       list.value->>'stream', case when (list.value->>'command')::bigint = 0 then 0 else (list.value->>'command')::bigint + $3::bigint end
  from {objects $2::jsonb}

-- Returns the parked streams of tenant $1 as JSON objects, in order. $2 is what was added to the ids of its commands when they were pasted.
-- Indexes: projections_tenant_name_partition_key, parked_streams_pkey. Locks nothing.
select {object 'name', p.name, 'partition', p.partition, 'stream', s.stream_id,
       'command', case when s.last_command = 0 then 0 else s.last_command - $2::bigint end}
  from {control}.projections p join {control}.parked_streams s on s.{projection} = p.id
 where p.tenant = {tenant_id $1::text} order by p.name, p.partition, s.stream_id

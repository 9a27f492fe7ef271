-- Returns the dead letters of tenant $1 as JSON objects, in order. $2 is what was added to the ids of its commands when they were pasted,
-- and $3 to those of its dead letters. Indexes: projections_tenant_name_partition_key, dead_letters_projection_id_position_key. Locks nothing.
select {object 'name', p.name, 'partition', p.partition, 'position', d.position, 'id', d.id - $3::bigint, 'stream', d.stream_id,
       'version', d.{stream_version}, 'type', d.type, 'blocked', d.blocked_by_stream::integer, 'state', d.state, 'error', d.error, 'stack', d.stack,
       'attempts', d.attempts, 'replays', d.replays, 'open', d.open_replays,
       'command', case when d.last_command = 0 then 0 else d.last_command - $2::bigint end,
       'first', {micros d.first_failed_at}, 'last', {micros d.last_failed_at}, 'ended', {micros d.ended_at}}
  from {control}.projections p join {control}.dead_letters d on d.{projection} = p.id
 where p.tenant = {tenant_id $1::text} order by p.name, p.partition, d.position

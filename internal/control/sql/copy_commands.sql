-- Returns the commands of tenant $1 as JSON objects, in order. It sorts those of a projection, and scans
-- their lists of dead letters. $2 is what was added to their ids when they were pasted, and $3 to those of
-- dead letters. Indexes: projections_tenant_name_partition_key, commands_projection_id_ended_at_idx. Locks nothing.
select {object 'name', p.name, 'partition', p.partition, 'id', c.id - $2::bigint, 'root', c.root - $2::bigint, 'kind', c.kind,
       'letters', {json case when c.dead_letter_ids is not null then (select {array list.value - $3::bigint} from {rows c.dead_letter_ids}) end},
       'stream', c.stream_id, 'type', c.type, 'error', c.error, 'most', c.max_events, 'current stream', c.current_stream, 'after', c.after_position,
       'done', c.done, 'failed', c.failed, 'current', c.current_dead_letter - $3::bigint, 'created', {micros c.created_at}, 'ended', {micros c.ended_at}}
  from {control}.projections p join {control}.commands c on c.{projection} = p.id
 where p.tenant = {tenant_id $1::text} order by p.name, p.partition, c.id

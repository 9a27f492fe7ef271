-- Inserts the rows $2 of copy_commands.sql into tenant $1. It adds $3 to the ids of commands, and $4 to those of dead letters. Indexes:
-- projections_tenant_name_partition_key, those of commands. Locks: the new rows, and their projections FOR KEY SHARE.
insert into {control}.commands
    (id, root, {projection}, kind, dead_letter_ids, stream_id, type, error, max_events, current_stream, after_position, done, failed,
     current_dead_letter, created_at, ended_at) {given_ids}
select (list.value->>'id')::bigint + $3::bigint, (list.value->>'root')::bigint + $3::bigint,
       (select p.id from {control}.projections p where p.tenant = {tenant_id $1::text} and p.name = list.value->>'name'
                                                    and p.partition = (list.value->>'partition')::integer),
       list.value->>'kind', {ids 'letters'}, list.value->>'stream', list.value->>'type', list.value->>'error', (list.value->>'most')::bigint,
       list.value->>'current stream', (list.value->>'after')::bigint, (list.value->>'done')::bigint, (list.value->>'failed')::bigint,
       (list.value->>'current')::bigint + $4::bigint, {time list.value->>'created'}, {time list.value->>'ended'}
  from {objects $2::jsonb}

-- Inserts the rows $2 of copy_dead_letters.sql into tenant $1. It adds $3 to the ids of commands, and $4 to those of dead letters. Indexes:
-- projections_tenant_name_partition_key, those of dead_letters. Locks: the new rows, and their projections FOR KEY SHARE.
insert into {control}.dead_letters
    (id, {projection}, position, stream_id, {stream_version}, type, blocked_by_stream, state, error, stack, attempts, replays, open_replays,
     last_command, first_failed_at, last_failed_at, ended_at) {given_ids}
select (list.value->>'id')::bigint + $4::bigint,
       (select p.id from {control}.projections p where p.tenant = {tenant_id $1::text} and p.name = list.value->>'name'
                                                    and p.partition = (list.value->>'partition')::integer),
       (list.value->>'position')::bigint, list.value->>'stream', (list.value->>'version')::bigint, list.value->>'type',
       (list.value->>'blocked')::integer::boolean, list.value->>'state', list.value->>'error', list.value->>'stack',
       (list.value->>'attempts')::integer, (list.value->>'replays')::integer, (list.value->>'open')::integer,
       case when (list.value->>'command')::bigint = 0 then 0 else (list.value->>'command')::bigint + $3::bigint end,
       {time list.value->>'first'}, {time list.value->>'last'}, {time list.value->>'ended'}
  from {objects $2::jsonb}

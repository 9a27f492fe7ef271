-- Inserts the rows $2 of copy_erasures.sql into tenant $1, with new ids in the same order. Needs no index. Locks: the new rows, and their
-- tenant FOR KEY SHARE.
insert into {control}.erasures (tenant, stream_id, positions, reason, pauses, requested_at, ended_at, events, types, applied, delivered)
select {tenant_id $1::text}, list.value->>'stream', {numbers 'positions'}, list.value->>'reason', (list.value->>'pauses')::integer::boolean,
       {time list.value->>'requested'}, {time list.value->>'ended'}, (list.value->>'events')::bigint, {texts 'types'}, {texts 'applied'},
       {texts 'delivered'}
  from {objects $2::jsonb}

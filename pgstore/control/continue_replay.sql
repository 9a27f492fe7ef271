-- Inserts a row by which the replay $1 continues in the partition $2, with the filter and the limit of its open row $3, at the parked
-- stream $4, and for this stream only if $5. Returns its id. Index: commands_pkey. Locks: the new row, and the row of the partition
-- FOR KEY SHARE, which the caller has inserted.
insert into {control}.commands (root, projection_id, kind, dead_letter_ids, stream_id, type, error, max_events, current_stream, created_at)
select $1::bigint, $2::integer, c.kind, case when $5::boolean then '{}' else c.dead_letter_ids end, c.stream_id, c.type, c.error, c.max_events,
       $4::text, c.created_at
  from {control}.commands c where c.id = $3::bigint
returning id

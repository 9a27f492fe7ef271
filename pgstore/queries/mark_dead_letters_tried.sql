-- Marks the dead letters of the partitions $1 that the replays $3 have tried as tried by the replays $4. It leaves out
-- rows with a stream in $2: see mark_stream_tried.sql. $5 has each partition once. Locks: the rows, which the
-- transaction has changed. Index: dead_letters_projection_id_position_key.
update {control}.dead_letters d set last_command = m.after
  from unnest($1::integer[], $2::text[], $3::bigint[], $4::bigint[]) as m(projection_id, stream, before, after)
 where m.stream is null and d.projection_id = m.projection_id and d.last_command = m.before
   and d.projection_id = any($5::integer[])

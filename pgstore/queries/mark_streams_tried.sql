-- Marks the parked streams of the partitions $1 that the replays $3 have tried as tried by the replays $4. It leaves out
-- rows with a stream in $2: see mark_stream_tried.sql. $5 has each partition once. Locks: the rows, which the
-- transaction has changed. Index: parked_streams_pkey.
update {control}.parked_streams s set last_command = m.after
  from unnest($1::integer[], $2::text[], $3::bigint[], $4::bigint[]) as m(projection_id, stream, before, after)
 where m.stream is null and s.projection_id = m.projection_id and s.last_command = m.before
   and s.projection_id = any($5::integer[])

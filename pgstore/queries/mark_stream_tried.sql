-- Marks the parked streams $2 of the partitions $1, which the replays $3 have tried, as tried by the replays $4. It
-- leaves out null streams: see mark_streams_tried.sql. $5 has each partition once. Locks: the rows, which the
-- transaction has changed. Index: parked_streams_pkey.
update {control}.parked_streams s set last_command = m.after
  from unnest($1::integer[], $2::text[], $3::bigint[], $4::bigint[]) as m(projection_id, stream, before, after)
 where s.projection_id = m.projection_id and s.stream_id = m.stream and s.last_command = m.before
   and s.projection_id = any($5::integer[])

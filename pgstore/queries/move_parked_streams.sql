-- Moves the parked streams of the partitions $1 to those of their slots. $1 to $3 as in move_dead_letters.sql. Index:
-- parked_streams_pkey. Locks: the rows FOR UPDATE until the commit, and those of projections as there.
update {control}.parked_streams s
   set projection_id = ($2::integer[])[width_bucket(('x' || left(md5(s.stream_id), 7))::bit(28)::integer, $3::integer[])]
 where s.projection_id = any($1::integer[])

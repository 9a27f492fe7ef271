-- Moves the parked streams of the partitions $1 to those of their slots. $1 to $4 as in move_dead_letters.sql. Index:
-- parked_streams_pkey. Locks: the rows FOR UPDATE until the commit, and those of projections as there.
update {control}.parked_streams s
   set projection_id = r.id
  from {control}.parked_streams m
 cross join lateral (select ('x' || left(md5(m.stream_id), 7))::bit(28)::integer as slot) i
  join unnest($2::integer[], $3::integer[], $4::integer[]) as r(id, slot_from, slot_to) on i.slot >= r.slot_from and i.slot < r.slot_to
 where m.projection_id = any($1::integer[]) and s.projection_id = m.projection_id and s.stream_id = m.stream_id

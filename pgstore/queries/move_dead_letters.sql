-- Moves the dead letters of the partitions $1 to those of their streams' slots: $2 has the partitions, $3 their first
-- slots, in order. A replay in progress of one of the partitions $4, whose owners are alive, is not counted: see
-- release.sql. Index: dead_letters_projection_id_position_key. Locks: the rows FOR UPDATE until the commit, and the
-- rows of projections FOR KEY SHARE, which the caller has inserted.
update {control}.dead_letters d
   set projection_id = ($2::integer[])[width_bucket(('x' || left(md5(d.stream_id), 7))::bit(28)::integer, $3::integer[])],
       open_replays = d.open_replays - (d.state = 'replaying' and d.open_replays > 0 and d.projection_id = any($4::integer[]))::integer,
       state = case when d.open_replays = 1 and d.projection_id = any($4::integer[]) and d.state = 'replaying' then 'parked' else d.state end,
       last_command = case when d.open_replays = 1 and d.projection_id = any($4::integer[]) and d.state = 'replaying' then 0 else d.last_command end
 where d.projection_id = any($1::integer[])

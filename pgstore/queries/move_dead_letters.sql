-- Moves the dead letters of the partitions $1 to those of their streams' slots: $2 has the partitions, $3 and $4 the
-- slots from and to which they have streams. A replay in progress of one of the partitions $5, whose owners are alive,
-- is not counted: see release.sql. Index: dead_letters_projection_id_position_key. Locks: the rows FOR UPDATE until the
-- commit, and the rows of projections FOR KEY SHARE, which the caller has inserted.
update {control}.dead_letters d
   set projection_id = r.id,
       open_replays = d.open_replays - i.interrupted::integer,
       state = case when i.interrupted and d.open_replays = 1 then 'parked' else d.state end,
       last_command = case when i.interrupted and d.open_replays = 1 then 0 else d.last_command end
  from {control}.dead_letters m
 cross join lateral (select ('x' || left(md5(m.stream_id), 7))::bit(28)::integer as slot,
                            m.state = 'replaying' and m.open_replays > 0 and m.projection_id = any($5::integer[]) as interrupted) i
  join unnest($2::integer[], $3::integer[], $4::integer[]) as r(id, slot_from, slot_to) on i.slot >= r.slot_from and i.slot < r.slot_to
 where m.projection_id = any($1::integer[]) and d.id = m.id

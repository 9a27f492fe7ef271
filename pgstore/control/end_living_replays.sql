-- Ends the attempts at dead letters of the partitions $1, whose owners are alive. The attempts are not counted: see release.sql.
-- Index: dead_letters_projection_id_position_idx. Locks: the rows FOR NO KEY UPDATE until the commit.
update {control}.dead_letters d
   set open_replays = d.open_replays - 1, state = case when d.open_replays = 1 then 'parked' else d.state end,
       last_command = case when d.open_replays = 1 then 0 else d.last_command end
 where d.projection_id = any($1::integer[]) and d.state in ('parked', 'replaying') and d.state = 'replaying' and d.open_replays > 0

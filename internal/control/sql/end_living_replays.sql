-- Ends the attempts at dead letters of the partitions $1, whose owners are alive. The attempts are not counted: see release.sql.
-- Index: dead_letters_projection_id_position_idx. Locks: the rows FOR NO KEY UPDATE until the commit.
update {control}.dead_letters
   set open_replays = open_replays - 1, state = case when open_replays = 1 then 'parked' else state end,
       last_command = case when open_replays = 1 then 0 else last_command end
 where {projection} {in $1::integer[]} and state in ('parked', 'replaying') and state = 'replaying' and open_replays > 0

-- Resolves the dead letters of the partitions $1 above the checkpoint $2, since their events will be passed again. Index:
-- dead_letters_projection_id_position_idx. Locks: the rows FOR NO KEY UPDATE until the commit.
update {control}.dead_letters set state = 'resolved', open_replays = 0, ended_at = {now}
 where {projection} {in $1::integer[]} and state in ('parked', 'replaying') and position > $2::bigint

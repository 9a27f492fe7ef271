-- Resolves the dead letters of the partitions $1 above the checkpoint $2, since their events will be passed again. Discarded ones too:
-- what is applied then must not seem to be missing, when later_handled.sql looks at the order of a replay. Index:
-- dead_letters_projection_id_position_key. Locks: the rows FOR NO KEY UPDATE until the commit.
update {control}.dead_letters set state = 'resolved', open_replays = 0, ended_at = {now}
 where {projection} {in $1::integer[]} and state <> 'resolved' and position > $2::bigint

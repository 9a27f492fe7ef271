-- Marks dead letter $2 of projection $1 resolved after its event was applied. Index: dead_letters_pkey. Locks: the row FOR
-- NO KEY UPDATE until the commit.
update {control}.dead_letters set state = 'resolved', open_replays = 0, ended_at = {now}
 where id = $2::bigint and {projection} = $1::integer and state = 'replaying'

-- Marks dead letter $2 of projection $1 resolved after its event was applied. "coalesce" leaves the planner no index but that of
-- ids: of a table that was nearly empty when it was analyzed, it would read all parked events, of this projection or of all.
-- Index: dead_letters_pkey. Locks: the row FOR NO KEY UPDATE until the commit.
update {control}.dead_letters set state = 'resolved', open_replays = 0, ended_at = {now}
 where id = $2::bigint and coalesce({projection} = $1::integer and state = 'replaying', false)

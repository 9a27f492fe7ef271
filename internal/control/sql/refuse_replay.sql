-- Records that command $3 refused to replay dead letter $2 of projection $1, since it would be out of order: open_replays is -1
-- then. Index: dead_letters_pkey, as in resolve_dead_letter.sql. Locks: the row FOR NO KEY UPDATE until the commit.
update {control}.dead_letters set state = 'parked', open_replays = -1, last_command = $3::bigint
 where id = $2::bigint and coalesce({projection} = $1::integer and state in ('parked', 'replaying'), false)

-- Parks dead letter $2 of projection $1 again, whose replay began and did not end. Index: dead_letters_pkey, as in
-- resolve_dead_letter.sql. Locks: the row FOR NO KEY UPDATE until the commit.
update {control}.dead_letters set state = 'parked', open_replays = 0
 where id = $2::bigint and coalesce({projection} = $1::integer and state = 'replaying', false)

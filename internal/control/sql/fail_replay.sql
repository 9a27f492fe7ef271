-- Parks dead letter $2 of projection $1 again after its replay failed. $3 error, $4 stack, $5 attempt (0: not counted).
-- Index: dead_letters_pkey, as in resolve_dead_letter.sql. Locks: the row FOR NO KEY UPDATE until the commit.
update {control}.dead_letters
   set state = 'parked', blocked_by_stream = false, open_replays = 0,
       replays = replays + ($5::integer > 0)::integer, attempts = case when $5::integer > attempts then $5::integer else attempts end,
       error = $3::text, stack = $4::text, last_failed_at = {now}
 where id = $2::bigint and coalesce({projection} = $1::integer and state = 'replaying', false)

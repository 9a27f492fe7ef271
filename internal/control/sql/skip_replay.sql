-- Discards dead letter $2 of projection $1 after a failed replay, as its handler requested. $3 error, $4 stack, $5
-- attempt. Index: dead_letters_pkey, as in resolve_dead_letter.sql. Locks: the row FOR NO KEY UPDATE until the commit.
update {control}.dead_letters
   set state = 'discarded', blocked_by_stream = false, open_replays = 0, replays = replays + 1, attempts = $5::integer,
       error = $3::text, stack = $4::text, last_failed_at = {now}, ended_at = {now}
 where id = $2::bigint and coalesce({projection} = $1::integer and state = 'replaying', false)

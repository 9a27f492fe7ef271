-- Counts the replay of dead letter $1 by command $2, and returns its number and the attempts before. $3 is the dead letter
-- whose replay the caller began last: its process did not crash. A refusal is forgotten: see refuse_replay.sql. It returns no
-- row if an earlier replay of it has committed meanwhile. Index: dead_letters_pkey, as in resolve_dead_letter.sql. Locks: the row
-- FOR NO KEY UPDATE until the commit.
update {control}.dead_letters
   set state = 'replaying', last_command = $2::bigint,
       open_replays = case when open_replays <= 0 then 1 when id = $3::bigint then open_replays else open_replays + 1 end
 where id = $1::bigint and coalesce(state in ('parked', 'replaying'), false)
returning open_replays, attempts

-- Ends the discard $1 with its result $2. Index: commands_pkey. Locks: the row FOR NO KEY UPDATE until the commit.
update {control}.commands set done = $2::bigint, ended_at = {now} where id = $1::bigint

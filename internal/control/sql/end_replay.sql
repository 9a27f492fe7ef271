-- Ends the replay command $1, unless it has ended, and returns the dead letter and the stream that it was at. Index:
-- commands_pkey. Locks: the row FOR NO KEY UPDATE until the commit.
update {control}.commands set ended_at = {now} where id = $1::bigint and ended_at is null returning current_dead_letter, current_stream

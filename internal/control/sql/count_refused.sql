-- Counts one more dead letter in row $1, which counts what a command refused: see refused_row.sql. Index: commands_pkey. Locks: the row FOR
-- NO KEY UPDATE until the commit.
update {control}.commands set failed = failed + 1 where id = $1::bigint

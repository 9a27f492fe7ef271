-- Marks command $1 as a replay that may be out of order: its first row is then its own root. Programs that do not know this ignore it.
-- Index: commands_pkey. Locks: the row, which the transaction has inserted.
update {control}.commands set root = id where id = $1::bigint

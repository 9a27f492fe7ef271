-- Renumbers the partitions ?1, a JSON array, which are about to be deleted, so that new partitions can use their
-- numbers. Index: the primary key. Lock: that of the file's writer.
update millrace_projections set partition = -1 - partition where id in (select value from json_each(?1))

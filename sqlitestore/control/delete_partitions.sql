-- Deletes the partitions ?1, a JSON array, to which nothing refers any more. Index: the primary key. Lock: that of the
-- file's writer.
delete from millrace_projections where id in (select value from json_each(?1))

-- Deletes the leases of the partitions ?1, a JSON array. From then on their owners cannot commit. Index: the primary key.
-- Lock: that of the file's writer.
delete from millrace_leases where id in (select value from json_each(?1))

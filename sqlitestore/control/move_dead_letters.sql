-- Moves the dead letters ?1, a JSON array, to the partition ?2. Index: the primary key. Lock: that of the file's writer.
update millrace_dead_letters set projection = ?2 where id in (select value from json_each(?1))

-- Deletes the node ?1. Index: the primary key. Locks: the file has one writer.
delete from millrace_nodes where id = ?1

-- Sets the summary ?2 of the node ?1. Index: the primary key. Locks: the file has one writer.
update millrace_nodes set summary = ?2 where id = ?1

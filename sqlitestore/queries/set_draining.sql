-- Marks the node ?1 as draining. Index: the primary key. Locks: the file has one writer.
update millrace_nodes set draining = 1 where id = ?1

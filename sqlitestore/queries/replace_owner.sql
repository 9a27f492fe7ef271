-- Deletes the previous owner of the file, whose leases are dead from now on. ?1 is the new owner. It scans the table,
-- which has at most one row, and needs no index. Locks: the file has one writer.
delete from millrace_nodes where id <> ?1

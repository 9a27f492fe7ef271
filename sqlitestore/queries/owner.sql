-- Returns the node that owns the file, or owned it last. It scans the table, which has at most one row, and needs no
-- index. Locks nothing.
select id from millrace_nodes

-- Returns the node that owns the file, or owned it last. Locks nothing. It reads the only row of the table, and needs no
-- index.
select id from millrace_nodes

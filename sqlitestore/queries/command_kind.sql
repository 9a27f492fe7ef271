-- Returns the kind of command ?1. Index: the primary key. Locks nothing.
select kind from millrace_commands where id = ?1

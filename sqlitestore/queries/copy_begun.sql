-- Returns the copy of the file that has begun, if there is one. It scans a table of one row. Needs no index. Locks nothing.
select id, from_name, to_name from millrace_copy

-- Returns where an earlier version has moved the file, if it has. It scans a table of one row. Needs no index. Locks nothing.
select to_name from millrace_copy

-- Returns the temporary objects of the connection that change what the store's statements do: tables and views with the store's
-- names, and triggers on its tables. The columns are those of foreign_objects.sql. Locks nothing, needs no index: scans
-- the list of temporary tables and sorts the result.
select 'temporary ' || type, name, tbl_name
from temp.sqlite_schema
where lower(name) glob 'millrace_*' or lower(tbl_name) glob 'millrace_*'
order by type, name

-- Lists the tables of the store, except that of the copy. It scans the schema, and sorts. Needs no index. Locks nothing.
select name from sqlite_schema where type = 'table' and name glob 'millrace_*' and name <> 'millrace_copy' order by name

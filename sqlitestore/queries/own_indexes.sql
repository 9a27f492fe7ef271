-- Lists the indexes of the store's tables that were created by name. It scans the schema. Needs no index. Locks nothing.
select name from sqlite_schema where type = 'index' and name glob 'millrace_*'

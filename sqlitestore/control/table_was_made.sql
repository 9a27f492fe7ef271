-- Returns whether the table ?1 of the store exists, which is created when it is needed. It scans the schema. Locks nothing, needs no index.
select exists (select 1 from sqlite_schema where type = 'table' and name = 'millrace_' || ?1)

-- Returns whether the table of erasures exists. It scans the schema. Locks nothing, needs no index.
select exists (select 1 from sqlite_schema where type = 'table' and name = 'millrace_erasures')

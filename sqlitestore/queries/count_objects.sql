-- Counts the tables and other objects of the file. Locks nothing, needs no index.
select count(*) from sqlite_schema

-- Returns the name of the store: the path of the file, and the id of complete_moves.sql. It scans the list of files. Locks nothing. Index:
-- the primary key.
select 'file "' || l.file || '", id ' || m.id from millrace_moves m, pragma_database_list l where m.tenant = 0 and l.name = 'main'

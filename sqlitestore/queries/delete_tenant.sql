-- Deletes the row of the tenant number ?1, of which nothing else is left. Lock: that of the file's writer. Index: the
-- primary key.
delete from millrace_tenants where id = ?1

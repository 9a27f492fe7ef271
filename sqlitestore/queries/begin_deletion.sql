-- Marks the tenant number ?1, which is being dropped and whose projections have stopped, so that its events cannot be
-- read any more. Returns the number, or no row if there is no such tenant. Lock: that of the file's writer. Index: the
-- primary key.
update millrace_tenants set deleting = 1 where id = ?1 and state = 'dropping' returning id

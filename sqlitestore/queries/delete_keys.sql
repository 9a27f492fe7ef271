-- Deletes up to ?2 idempotency keys of the tenant number ?1. Lock: that of the file's writer. Index: the primary key.
delete from millrace_append_keys where (tenant, key) in (select tenant, key from millrace_append_keys where tenant = ?1 limit ?2)

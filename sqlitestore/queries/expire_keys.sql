-- Deletes up to 64 idempotency keys that are older than ?1, of any tenant. Lock: that of the file's writer. Indexes:
-- that by time, and the primary key.
delete from millrace_append_keys where (tenant, key) in (
select tenant, key from millrace_append_keys where created_at < ?1 order by created_at limit 64)

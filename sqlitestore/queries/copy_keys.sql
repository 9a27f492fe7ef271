-- Returns the idempotency keys of the tenant ?1 after key ?2, at most ?3, in order. The columns are those of
-- transfer.Keys. Index: the primary key. Locks nothing.
select key, stream_id, first_version, last_version, created_at from millrace_append_keys
where tenant = (select id from millrace_tenants where name = ?1) and key > ?2 order by key limit ?3

-- Inserts an idempotency key with the versions of its events. Lock: that of the file's writer. Indexes: the primary
-- key, and that by time.
insert into millrace_append_keys (tenant, key, stream_id, first_version, last_version, created_at) values (?1, ?2, ?3, ?4, ?5, ?6)

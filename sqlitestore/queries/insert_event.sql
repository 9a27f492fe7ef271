-- Inserts an event. Lock: that of the file's writer. Indexes: the primary key, and that by stream and version.
insert into millrace_events (id, slot, stream_id, version, type, body, headers, causation_id, correlation_id, created_at, checksum)
values (?1, ?2, ?3, ?4, ?5, ?6, nullif(?7, ''), nullif(?8, ''), nullif(?9, ''), ?10, ?11)

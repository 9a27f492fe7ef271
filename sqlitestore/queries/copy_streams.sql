-- Returns the streams of the tenant ?1 after stream ?2, at most ?3, in order. The columns are those of transfer.Streams.
-- Index: the primary key. Locks nothing.
select stream_id, version from millrace_streams
where tenant = (select id from millrace_tenants where name = ?1) and stream_id > ?2 order by stream_id limit ?3

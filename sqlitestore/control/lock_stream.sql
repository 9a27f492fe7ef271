-- Returns the version of stream ?2 of tenant ?1, nothing if there is no such stream. Lock: that of the file's writer, so appends wait.
-- Indexes: tenants by name, the primary key of streams.
select s.version from millrace_tenants t join millrace_streams s on s.tenant = t.id and s.stream_id = ?2 where t.name = ?1

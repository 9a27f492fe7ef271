-- Deletes up to ?2 streams of the tenant number ?1. Lock: that of the file's writer. Index: the primary key.
delete from millrace_streams where (tenant, stream_id) in (select tenant, stream_id from millrace_streams where tenant = ?1 limit ?2)

-- Deletes up to ?2 parked streams of the tenant number ?1. Lock: that of the file's writer. Indexes: that of projections
-- by tenant, and the primary key.
delete from millrace_parked_streams where (projection, stream_id) in
(select s.projection, s.stream_id from millrace_projections p join millrace_parked_streams s on s.projection = p.id where p.tenant = ?1 limit ?2)

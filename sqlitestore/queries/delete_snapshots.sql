-- Deletes up to ?2 snapshots of the tenant number ?1, and of tenants that are gone: an older program leaves them. It scans the snapshots of
-- others. Lock: that of the file's writer. Index: the primary key of snapshots.
delete from millrace_snapshots where (tenant, stream_id) in (
    select tenant, stream_id from millrace_snapshots where tenant = ?1 or tenant not in (select id from millrace_tenants) limit ?2)

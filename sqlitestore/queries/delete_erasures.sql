-- Deletes up to ?2 erasures of the tenant number ?1, and of tenants that are gone: an older program leaves them. It scans the erasures.
-- Lock: that of the file's writer. Needs no index.
delete from millrace_erasures where id in (
    select id from millrace_erasures where tenant = ?1 or tenant not in (select id from millrace_tenants) limit ?2)

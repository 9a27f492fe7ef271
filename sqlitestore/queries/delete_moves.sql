-- Deletes up to ?2 moves of the tenant number ?1, and of tenants that are gone: an older program leaves them. It scans the moves. Lock: that
-- of the file's writer. Index: the primary key.
delete from millrace_moves where tenant in (
    select tenant from millrace_moves where tenant = ?1 or tenant <> 0 and tenant not in (select id from millrace_tenants) limit ?2)

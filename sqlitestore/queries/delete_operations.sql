-- Deletes up to ?2 operations of the tenant number ?1. Lock: that of the file's writer. Indexes: that of open operations
-- does not serve it: it scans the operations, which are few, as those that ended a day ago are deleted.
delete from millrace_operations where id in (select id from millrace_operations where tenant = ?1 limit ?2)

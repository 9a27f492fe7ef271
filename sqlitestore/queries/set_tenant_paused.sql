-- Sets whether the tenant number ?1 is paused (?2). Lock: that of the file's writer. Index: the primary key.
update millrace_tenants set paused = ?2 where id = ?1

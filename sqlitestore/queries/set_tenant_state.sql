-- Sets the state ?2 of the tenant number ?1. Lock: that of the file's writer. Index: the primary key.
update millrace_tenants set state = ?2 where id = ?1

-- Sets the last position of a tenant. Lock: that of the file's writer. Index: the primary key.
update millrace_tenants set head = ?2 where id = ?1

-- Inserts a tenant. Lock: that of the file's writer. Index: that by name.
insert into millrace_tenants (name) values (?1)

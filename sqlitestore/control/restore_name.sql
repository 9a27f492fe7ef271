-- Deletes the name ?2 of the tenant ?1 from the retired ones. Indexes: tenants by name, and the primary key. Lock: that of
-- the file's writer.
delete from millrace_retired_projections where tenant = (select id from millrace_tenants where name = ?1) and name = ?2

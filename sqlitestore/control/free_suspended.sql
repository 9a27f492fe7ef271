-- Releases the leases of tenant ?1 whose owners are dead, while it is suspended, and raises their epochs, so that the owners
-- cannot commit if they are alive after all, and returns their rows. :living is the living owner of the file, '' for none.
-- Indexes: tenants by name, projections by tenant, the primary key of leases. Lock: that of the file's writer.
update millrace_leases set owner = null, free_since = :now, epoch = epoch + 1, crash_count = crash_count + 1
where id in (select p.id from millrace_tenants t cross join millrace_projections p on p.tenant = t.id
             where t.name = ?1 and p.tenant_suspended)
  and owner is not null and owner <> :living
returning id

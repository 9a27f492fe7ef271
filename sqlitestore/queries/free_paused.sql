-- Releases the leases of a paused projection whose owners are dead, and raises their epochs, so that the owners cannot
-- commit if they are alive after all. ?1 tenant, ?2 projection, ?3 the living owner of the file, '' for none, ?4 the time.
-- Indexes: tenants by name, projections by tenant, the primary key of leases. Locks: the file has one writer.
update millrace_leases set owner = null, free_since = ?4, epoch = epoch + 1, crash_count = crash_count + 1
where id in (select p.id from millrace_tenants t cross join millrace_projections p on p.tenant = t.id
             where t.name = ?1 and p.name = ?2 and p.desired_state = 'pause')
  and owner is not null and owner <> ?3

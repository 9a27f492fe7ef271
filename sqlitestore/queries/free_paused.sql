-- Releases the leases of stopped projections whose owners are dead, and raises their epochs, so that the owners cannot
-- commit if they are alive after all. ?1 tenant, ?2 names and ?3 operation, as in pause_state.sql, ?4 the living owner of
-- the file, '' for none, ?5 the time. Indexes: tenants by name, projections by tenant, the primary key of leases. Locks:
-- the file has one writer.
update millrace_leases set owner = null, free_since = ?5, epoch = epoch + 1, crash_count = crash_count + 1
where id in (select p.id from millrace_tenants t cross join millrace_projections p on p.tenant = t.id
             where t.name = ?1 and p.name in (select value from json_each(?2))
               and case when ?3 is null then p.desired_state = 'pause' else p.held_by = ?3 end)
  and owner is not null and owner <> ?4

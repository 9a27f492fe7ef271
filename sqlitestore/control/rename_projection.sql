-- Gives the projection ?2 of the tenant ?1 the name ?3. ?4, a JSON array, has the rows whose owner is alive: its attempt in
-- progress ends, and is not counted; see release.sql. Indexes: tenants by name, projections by tenant. Lock: that of the
-- file's writer.
update millrace_projections
set name = ?3, crash_attempts = crash_attempts - (crash_attempts > 0 and id in (select value from json_each(?4)))
where tenant = (select id from millrace_tenants where name = ?1) and name = ?2

-- Gives the projection $2 of tenant $1 the name $3. $4 are the rows whose owners are alive: their attempts in progress end, and
-- are not counted; see release.sql. The caller has locked the rows. Index: projections_tenant_name_partition_key.
update {control}.projections p
   set name = $3::text, crash_attempts = p.crash_attempts - (p.crash_attempts > 0 and p.id = any($4::integer[]))::integer
 where p.tenant = $1::text and p.name = $2::text

-- Reports whether tenant ?1 exists, and whether it has the projection ?2 with partition ?3 (0: any). Indexes: tenants by
-- name, projections by tenant. Locks nothing.
select exists (select 1 from millrace_tenants where name = ?1),
       exists (select 1 from millrace_projections p where p.tenant = (select id from millrace_tenants where name = ?1)
               and p.name = ?2 and (?3 = 0 or p.partition = ?3))

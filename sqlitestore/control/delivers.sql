-- Reports whether a partition of projection ?2 of tenant ?1 delivers. Indexes: tenants by name, projections by tenant. Locks
-- nothing.
select exists (select 1 from millrace_projections p
               where p.tenant = (select id from millrace_tenants where name = ?1) and p.name = ?2 and p.delivers)

-- Returns the owners of the leases of the tenant number ?1. Indexes: that of projections by tenant, and the primary key
-- of leases. Locks nothing.
select l.owner from millrace_projections p join millrace_leases l on l.id = p.id
where p.tenant = ?1 and l.owner is not null

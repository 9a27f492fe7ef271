-- Returns the rows of the projections with the names ?2 in the tenants ?1, both JSON arrays, in pairs, with the owners of their
-- leases, whether the owner is the living node :living, and whether it is dead. Indexes: tenants by name, projections by
-- tenant, the primary key of leases. Locks: the file has one writer.
with n as materialized (select key, value from json_each(?2))
select p.id, coalesce(l.owner, ''), coalesce(l.owner = :living, 0), coalesce(l.owner <> :living, 0)
from json_each(?1) r cross join n on n.key = r.key
cross join millrace_tenants t on t.name = r.value
cross join millrace_projections p on p.tenant = t.id and p.name = n.value
cross join millrace_leases l on l.id = p.id

-- Returns the rows of projections, and the owners of their leases. ?1 is a JSON array with a list of tenant and name for each
-- projection. Indexes: tenants by name, projections by tenant, the primary key of leases. Locks nothing.
select p.id, coalesce(l.owner, '')
from json_each(?1) r cross join millrace_tenants t on t.name = json_extract(r.value, '$[0]')
cross join millrace_projections p on p.tenant = t.id and p.name = json_extract(r.value, '$[1]')
cross join millrace_leases l on l.id = p.id

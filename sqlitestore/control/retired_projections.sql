-- Returns the retired ones of the names ?2 in the tenants ?1, which are JSON arrays. Indexes: tenants by name, and the
-- primary key. Locks nothing.
select t.name, x.name, x.reason, coalesce(x.successor, '')
from json_each(?1) r
cross join millrace_tenants t on t.name = r.value
cross join json_each(?2) n
cross join millrace_retired_projections x on x.tenant = t.id and x.name = n.value

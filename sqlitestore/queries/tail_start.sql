-- Returns the number of the tenant ?1, its last position, and the highest checkpoint of its projections. passed of a
-- partition counts as well. Indexes: that of tenants by name, the unique index of projections, and the primary key of
-- leases. Locks nothing.
select t.id, t.head, coalesce((select max(max(l.checkpoint, coalesce((select max(value ->> 2) from json_each(p.passed)), 0)))
from millrace_projections p join millrace_leases l on l.id = p.id where p.tenant = t.id), 0)
from millrace_tenants t where t.name = ?1

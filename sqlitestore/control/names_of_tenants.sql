-- Returns the names of the projections of the tenants ?1, a JSON array, the retired names with their reasons and successors,
-- and the names with open operations, with the reason "operation" and the kind. A row with the reason "tenant" has the key of the
-- tenant as its name, and its state. Tenants that are being dropped or copied are left out. Indexes: tenants by name, projections by
-- tenant, the primary key of retired names, and that of open operations. Locks nothing.
select t.name, cast(t.id as text), 'tenant', t.state
from json_each(?1) r cross join millrace_tenants t on t.name = r.value and t.state in ('active', 'archived')
union all
select t.name, p.name, '', ''
from json_each(?1) r cross join millrace_tenants t on t.name = r.value and t.state in ('active', 'archived')
cross join millrace_projections p on p.tenant = t.id
union all
select t.name, x.name, x.reason, coalesce(x.successor, '')
from json_each(?1) r cross join millrace_tenants t on t.name = r.value and t.state in ('active', 'archived')
cross join millrace_retired_projections x on x.tenant = t.id
union all
select t.name, o.name, 'operation', o.kind
from json_each(?1) r cross join millrace_tenants t on t.name = r.value and t.state in ('active', 'archived')
cross join millrace_operations o on o.tenant = t.id and o.ended_at is null

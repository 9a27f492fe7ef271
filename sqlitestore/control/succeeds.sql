-- Reports whether the projection ?2 of the tenant ?1 has taken the place of another one, and whether that one was ever in
-- use. Indexes: tenants by name, and the primary key of retired names. Locks nothing.
select count(*) > 0, count(*) filter (where x.reason <> 'unused') > 0
from millrace_tenants t join millrace_retired_projections x on x.tenant = t.id and x.successor = ?2
where t.name = ?1

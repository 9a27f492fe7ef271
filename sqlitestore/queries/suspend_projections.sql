-- Suspends the projections of the tenant number ?1, or ends their suspension, by the state of the tenant. Lock: that of
-- the file's writer. Indexes: the primary key of tenants, and that of projections by tenant.
update millrace_projections set tenant_suspended = t.suspended
from (select id, state <> 'active' or paused as suspended from millrace_tenants where id = ?1) t
where millrace_projections.tenant = t.id and millrace_projections.tenant_suspended <> t.suspended

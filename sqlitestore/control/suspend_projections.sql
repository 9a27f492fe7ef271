-- Suspends the projections of tenant ?1, or ends their suspension, by the state of the tenant. Lock: that of the file's
-- writer. Indexes: that of tenants by name, and that of projections by tenant.
update millrace_projections set tenant_suspended = t.suspended
from (select id, state <> 'active' or paused as suspended from millrace_tenants where name = ?1) t
where millrace_projections.tenant = t.id and millrace_projections.tenant_suspended <> t.suspended

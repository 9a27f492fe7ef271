-- Deletes up to ?2 aliases of the tenant number ?1, and of tenants that are gone: an older program leaves them. Lock: that of the
-- file's writer. Index: the primary key, which named searches for each tenant that has aliases.
with recursive named(tenant) as (
    select min(tenant) from millrace_aliases
    union all
    select (select min(a.tenant) from millrace_aliases a where a.tenant > named.tenant) from named where named.tenant is not null
)
delete from millrace_aliases where (tenant, name) in (
    select a.tenant, a.name from named join millrace_aliases a on a.tenant = named.tenant
    where named.tenant = ?1 or named.tenant not in (select id from millrace_tenants) limit ?2)

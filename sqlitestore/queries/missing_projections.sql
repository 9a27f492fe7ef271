-- Returns the places, from 0, of those projections in the JSON array ?1 that have no rows. Each element is a list of tenant,
-- name, the name in earlier releases (empty: none), and the name without its version. With them it returns why they must not
-- be created: "waiting" if the tenant has a version of the projection under the earlier name; or why the name is retired, and
-- its successor; or where the earlier name leads, if that is another projection. Nearly always there are none. Indexes:
-- tenants by name, projections by tenant, and the primary key of retired names. Locks nothing.
with r as (
    select key, json_extract(value, '$[0]') as tenant, json_extract(value, '$[1]') as name, json_extract(value, '$[2]') as renamed_from,
           json_extract(value, '$[3]') as base
    from json_each(?1)
)
select r.key,
       case when r.renamed_from <> '' and exists (select 1 from millrace_projections o where o.tenant = t.id
                 and (o.name = r.renamed_from or substr(o.name, 1, length(r.renamed_from) + 1) = r.renamed_from || '@' and ltrim(substr(o.name, length(r.renamed_from) + 2), '0123456789') = ''))
            then 'waiting' else coalesce(x.reason, y.reason, '') end,
       coalesce(x.successor, y.successor, '')
from r
left join millrace_tenants t on t.name = r.tenant
left join millrace_retired_projections x on x.tenant = t.id and x.name = r.name
left join millrace_retired_projections y on y.tenant = t.id and y.name = r.renamed_from and y.successor is not null
     and not (y.successor = r.base or substr(y.successor, 1, length(r.base) + 1) = r.base || '@' and ltrim(substr(y.successor, length(r.base) + 2), '0123456789') = '')
where not exists (select 1 from millrace_projections p where p.tenant = t.id and p.name = r.name)

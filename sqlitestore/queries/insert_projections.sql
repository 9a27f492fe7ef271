-- Inserts the rows of projections that have none. ?1 is a JSON array with a list for each row: tenant, name, partition,
-- number of partitions, first slot, the slot after the last one, token, a list of the earlier versions, the name in earlier
-- releases (empty: none), and the name without its version. Tenants that do not exist or are not active are left out, and so
-- are retired names and projections that exist under the earlier name, or that it leads away from. So is a version from 2 on,
-- unless an earlier one has rows or is succeeded by it: see begin_version.sql. Indexes: tenants by name, projections by tenant,
-- and the primary key of retired names. Locks: the file has one writer.
with r as (
    select value, json_extract(value, '$[0]') as tenant, json_extract(value, '$[1]') as name, json_extract(value, '$[8]') as renamed_from,
           json_extract(value, '$[9]') as base
    from json_each(?1)
)
insert into millrace_projections (tenant, name, partition, partitions, slot_from, slot_to, token, tenant_suspended)
select t.id, r.name, json_extract(r.value, '$[2]'), json_extract(r.value, '$[3]'),
       json_extract(r.value, '$[4]'), json_extract(r.value, '$[5]'), json_extract(r.value, '$[6]'), t.paused
from r cross join millrace_tenants t on t.name = r.tenant and t.state = 'active'
where not exists (select 1 from millrace_projections p where p.tenant = t.id and p.name = r.name)
  and not exists (select 1 from millrace_retired_projections x where x.tenant = t.id and x.name = r.name)
  and (json_array_length(r.value, '$[7]') = 0
       or exists (select 1 from millrace_projections p
                  where p.tenant = t.id and p.name in (select value from json_each(r.value, '$[7]')))
       or exists (select 1 from millrace_retired_projections x where x.tenant = t.id and x.successor = r.name))
  and not (r.renamed_from <> '' and exists (select 1 from millrace_projections o where o.tenant = t.id
           and (o.name = r.renamed_from or substr(o.name, 1, length(r.renamed_from) + 1) = r.renamed_from || '@' and ltrim(substr(o.name, length(r.renamed_from) + 2), '0123456789') = '')))
  and not exists (select 1 from millrace_retired_projections y where y.tenant = t.id and y.name = r.renamed_from and y.successor is not null
                  and not (y.successor = r.base or substr(y.successor, 1, length(r.base) + 1) = r.base || '@' and ltrim(substr(y.successor, length(r.base) + 2), '0123456789') = ''))

-- Returns the places, from 0, of those projections in the JSON array ?1 that have no rows. Each element is a list of
-- tenant and name. Nearly always there are none. Indexes: tenants by name, projections by tenant. Locks nothing.
select r.key from json_each(?1) r
where not exists (select 1 from millrace_tenants t join millrace_projections p on p.tenant = t.id and p.name = json_extract(r.value, '$[1]')
                  where t.name = json_extract(r.value, '$[0]'))

-- Retires the earlier names of the projections whose ids are above ?2. ?1 is the argument of insert_projections.sql, ?3 the
-- time. Indexes: tenants by name, projections by tenant, and the primary key of retired names. Locks: the file has one writer.
insert into millrace_retired_projections (tenant, name, successor, reason, retired_at)
select t.id, json_extract(r.value, '$[8]') || e.value, json_extract(r.value, '$[1]'), 'renamed', ?3
from json_each(?1) r
cross join json_each(json_array('', substr(json_extract(r.value, '$[1]'), length(json_extract(r.value, '$[9]')) + 1))) e
cross join millrace_tenants t on t.name = json_extract(r.value, '$[0]')
where json_extract(r.value, '$[8]') <> ''
  and exists (select 1 from millrace_projections p where p.tenant = t.id and p.name = json_extract(r.value, '$[1]') and p.id > ?2)
on conflict do nothing

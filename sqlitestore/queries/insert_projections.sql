-- Inserts the rows of projections that have none. ?1 is a JSON array with a list for each row: tenant, name, partition,
-- number of partitions, first slot, the slot after the last one, token. Tenants that do not exist or are not active are
-- left out. Indexes: tenants by name, projections by tenant. Locks: the file has one writer.
insert into millrace_projections (tenant, name, partition, partitions, slot_from, slot_to, token, suspended)
select t.id, json_extract(r.value, '$[1]'), json_extract(r.value, '$[2]'), json_extract(r.value, '$[3]'),
       json_extract(r.value, '$[4]'), json_extract(r.value, '$[5]'), json_extract(r.value, '$[6]'), t.paused
from json_each(?1) r cross join millrace_tenants t on t.name = json_extract(r.value, '$[0]') and t.state = 'active'
where not exists (select 1 from millrace_projections p where p.tenant = t.id and p.name = json_extract(r.value, '$[1]'))

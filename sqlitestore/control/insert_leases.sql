-- Inserts the leases of the projections that insert_projections.sql inserted. ?1 is its argument. Indexes: tenants by name, and projections
-- by tenant. Lock: that of the file's writer.
insert into millrace_leases (id, checkpoint, free_since)
select p.id, list.value->>'checkpoint', :now
from json_each(?1) list
cross join millrace_tenants t on t.name = list.value->>'tenant'
cross join millrace_projections p on p.tenant = t.id and p.name = list.value->>'name' and p.partition = list.value->>'partition'

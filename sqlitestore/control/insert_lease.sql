-- Inserts the free lease of the partition with the number ?2 of the projection of which ?1 is a partition. ?3 checkpoint, ?4
-- crash_count. Indexes: the primary keys, and projections by tenant. Lock: that of the file's writer.
insert into millrace_leases (id, checkpoint, crash_count, free_since)
select p.id, ?3, ?4, :now
from millrace_projections x cross join millrace_projections p on p.tenant = x.tenant and p.name = x.name and p.partition = ?2
where x.id = ?1

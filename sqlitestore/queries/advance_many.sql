-- Moves checkpoints over events that do not concern their projections, for all projections of the node ?2 at once, each
-- under its fence. ?1 is a JSON array with a list for each lease: lease, epoch, old and new checkpoint. If old and new are
-- equal, the owner is idle, and crash_count becomes 0. "+" prevents a search by owner, with a scan of the array for each
-- lease. None moves past its tenant's last event, as in advance.sql. Indexes: the primary keys. Locks: the file has one writer.
update millrace_leases
set checkpoint = r.new, crash_count = case when r.new = r.old then 0 else crash_count end
from (select json_extract(value, '$[0]') as lease, json_extract(value, '$[1]') as epoch, json_extract(value, '$[2]') as old,
             json_extract(value, '$[3]') as new from json_each(?1)) r
where millrace_leases.id = r.lease and +owner = ?2 and millrace_leases.epoch = r.epoch and checkpoint = r.old
and r.new <= (select t.head from millrace_projections p join millrace_tenants t on t.id = p.tenant where p.id = r.lease)
returning id

-- Releases leases, each with its checkpoint moved over events that do not concern its projection. Leases that the node ?2
-- no longer holds are skipped. ?1 is a JSON array with a list for each lease: lease, epoch, old and new checkpoint. ?3 is
-- the time. "+" is as in advance_many.sql. Index: the primary key. Locks: the file has one writer.
update millrace_leases
set owner = null, free_since = ?3, checkpoint = max(checkpoint, case when checkpoint = r.old then r.new else 0 end)
from (select json_extract(value, '$[0]') as lease, json_extract(value, '$[1]') as epoch, json_extract(value, '$[2]') as old,
             json_extract(value, '$[3]') as new from json_each(?1)) r
where millrace_leases.id = r.lease and +owner = ?2 and millrace_leases.epoch = r.epoch

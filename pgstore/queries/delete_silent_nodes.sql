-- Deletes nodes that expired an hour ago and hold no lease. It scans nodes, which are few because each starting node
-- does this. Locks: the rows. Index: leases_owner_idx.
delete from {control}.nodes n
 where n.expires_at < clock_timestamp() - interval '1 hour' and not exists (select from {control}.leases l where l.owner = n.id)

-- Takes those off the list that have been silent for an hour and hold no lease. It reads all of nodes, which are few as
-- long as this is done whenever one starts. Locks: the rows. Index: leases_owner_idx.
delete from {control}.nodes n
 where n.expires_at < clock_timestamp() - interval '1 hour' and not exists (select from {control}.leases l where l.owner = n.id)

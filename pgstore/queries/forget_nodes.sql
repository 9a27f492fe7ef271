-- Takes those off the list that have been silent for an hour. It reads all of nodes, which are few as long as this is done
-- whenever one starts. Locks: the rows. No index.
delete from {control}.nodes where expires_at < clock_timestamp() - interval '1 hour'

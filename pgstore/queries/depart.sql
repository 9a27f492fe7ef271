-- Takes the node off the list, and those that have been silent for a day. Index: nodes_pkey. Locks: the rows.
delete from {control}.nodes where id = $1::uuid or expires_at < clock_timestamp() - interval '1 day'

-- Moves the checkpoint of lease $1 from $2 to $3. Index: leases_pkey. Locks: the row FOR NO KEY UPDATE until the commit.
update {control}.leases set checkpoint = $3::bigint, crash_count = 0 where id = $1::integer and checkpoint = $2::bigint

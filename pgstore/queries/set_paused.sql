-- Says whether a projection is wanted to run. Index: projections_tenant_name_partition_key. Locks: its row.
update {control}.projections set paused = $4::boolean
 where tenant = $1::text and name = $2::text and partition = $3::integer

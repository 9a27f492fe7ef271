-- Says whether a projection is wanted to run, to pause or to stop. To run takes back that it failed. Index:
-- projections_tenant_name_partition_key. Locks: its row.
update {control}.projections set wanted = $4::text, failed = case when $4::text = 'run' then null else failed end
 where tenant = $1::text and name = $2::text and partition = $3::integer

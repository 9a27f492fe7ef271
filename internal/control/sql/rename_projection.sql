-- Gives the projection $2 of tenant $1, whose rows are locked, the name $3. Index: projections_tenant_name_partition_key.
update {control}.projections set name = $3::text where tenant = {tenant_id $1::text} and name = $2::text

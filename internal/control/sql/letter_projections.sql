-- Returns the rows of projection $2 of tenant $1, one for each partition, or only that of partition $3 unless it is 0.
-- Index: projections_tenant_name_partition_key. Locks nothing.
select p.id from {control}.projections p
 where p.tenant = {tenant_id $1::text} and p.name = $2::text and ($3::integer = 0 or p.partition = $3::integer) order by p.partition

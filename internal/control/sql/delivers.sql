-- Reports whether a partition of projection $2 of tenant $1 delivers. Index: projections_tenant_name_partition_key. Locks
-- nothing.
select exists (select 1 from {control}.projections where tenant = {tenant_id $1::text} and name = $2::text and delivers)

-- Returns the rows of the projections $2 of tenant $1. Index: projections_tenant_name_partition_key. It sorts them. Locks nothing.
select id from {control}.projections where tenant = {tenant_id $1::text} and name {in $2::text[]} order by id

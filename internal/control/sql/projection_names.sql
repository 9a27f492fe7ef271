-- Returns the names of the projections of tenant $1. Index: that of projections by tenant, name and partition. Locks nothing.
select distinct name from {control}.projections where tenant = {tenant_id $1::text}

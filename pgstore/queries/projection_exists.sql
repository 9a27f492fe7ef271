-- Reports whether tenant $1 exists, and whether it has the projection $2 with partition $3 (0: any). Indexes:
-- tenants_pkey, projections_tenant_name_partition_key. Locks nothing.
select exists (select from {control}.tenants where tenant = $1),
       exists (select from {control}.projections where tenant = $1 and name = $2 and ($3 = 0 or partition = $3))

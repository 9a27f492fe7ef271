-- Records that tenant $1, which is locked, belongs to copy $2 (null: none). Lock: the tenant's row. Index: tenants_pkey.
update {control}.tenants set copy = $2::uuid where tenant = $1::text

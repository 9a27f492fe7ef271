-- Sets the state $2 of tenant $1, which is locked. Only the role that migrates may. Index: tenants_pkey. Lock: the row.
update {control}.tenants set state = $2::text where {tenant_name} = $1::text

-- Sets the state $2 of tenant $1, which is locked, and whether it is paused, $3; null keeps what it is. Index: tenants_pkey.
-- Lock: the row.
update {control}.tenants set state = coalesce($2::text, state), paused = coalesce($3::boolean, paused) where {tenant_name} = $1::text

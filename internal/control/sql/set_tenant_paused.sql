-- Sets whether tenant $1, which is locked, is paused, $2. It sets no other column: the role that runs may update this one alone.
-- Index: tenants_pkey. Lock: the row.
update {control}.tenants set paused = $2::boolean where {tenant_name} = $1::text

-- Deletes the name $2 of tenant $1 from the retired ones. Index: retired_projections_pkey. Lock: the row.
delete from {control}.retired_projections where tenant = {tenant_id $1::text} and name = $2::text

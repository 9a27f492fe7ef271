-- Deletes the record of the move of tenant $1, which is locked. Index: moves_pkey. Lock: the row.
delete from {control}.moves where tenant = {tenant_id $1::text}

-- Records that a second call has taken up the move of tenant $1, which is locked. Index: moves_pkey. Lock: the row.
update {control}.moves set repeated = true where tenant = {tenant_id $1::text}

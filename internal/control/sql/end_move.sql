-- Records that the target of the move $2 of tenant $1 has committed. Index: moves_pkey. Lock: the row.
update {control}.moves set moved_at = {now} where tenant = {tenant_id $1::text} and id = $2::text and away and moved_at is null

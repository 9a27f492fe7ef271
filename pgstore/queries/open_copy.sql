-- Records that copy $1 has opened a tenant. Lock: the row. Index: copies_pkey.
update {control}.copies set opened_at = coalesce(opened_at, clock_timestamp()) where id = $1::uuid

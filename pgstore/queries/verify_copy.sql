-- Records that copy $1 is verified. Lock: the row. Index: copies_pkey.
update {control}.copies set verified_at = coalesce(verified_at, clock_timestamp()) where id = $1::uuid

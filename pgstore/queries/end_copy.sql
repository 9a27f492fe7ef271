-- Records that copy $1 has ended. Lock: the row. Index: copies_pkey.
update {control}.copies set ended_at = coalesce(ended_at, clock_timestamp()) where id = $1::uuid

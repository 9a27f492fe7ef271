-- Records that copy $1 is not verified any more. Lock: the row. Index: copies_pkey.
update {control}.copies set verified_at = null where id = $1::uuid

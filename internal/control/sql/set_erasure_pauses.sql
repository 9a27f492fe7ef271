-- Records that erasure $1 pauses its tenant. Index: erasures_pkey. Lock: the row.
update {control}.erasures set pauses = true where id = $1::bigint

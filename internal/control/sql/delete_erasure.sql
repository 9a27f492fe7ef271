-- Deletes the record of erasure $1, which has not redacted anything. Index: erasures_pkey. Lock: the row.
delete from {control}.erasures where id = $1::bigint and ended_at is null

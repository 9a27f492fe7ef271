-- Ends an operation that failed. $1 operation, $2 epoch, $3 code, $4 error, $5 channel. Indexes and locks: those of the
-- function.
select {control}.end_operation(null, $1::bigint, $2::bigint, $3::text, $4::text, $5::text)

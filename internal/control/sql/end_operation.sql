-- Ends operation $1 if it is open, and nothing took it over since epoch $2. $3 code and $4 error, null if it did not fail.
-- Index: operations_pkey. Locks: the row FOR NO KEY UPDATE until the commit.
update {control}.operations set ended_at = {now}, code = $3::text, error = $4::text
 where id = $1::bigint and epoch = $2::bigint and ended_at is null

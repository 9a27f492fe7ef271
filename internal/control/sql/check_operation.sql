-- Returns the operation $1 if it is open, and nothing took it over since epoch $2. Index: operations_pkey. Lock: the row FOR SHARE, until
-- the commit, so that it does not end before.
select id from {control}.operations where id = $1::bigint and epoch = $2::bigint and ended_at is null {lock for share}

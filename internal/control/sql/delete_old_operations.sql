-- Deletes the operations on projection $2 of tenant $1 that ended longer than $3 ago. Index: operations_tenant_name_ended_at_idx.
-- Locks: the rows until the commit.
delete from {control}.operations where tenant = {tenant_id $1::text} and name = $2::text and ended_at < {now} - $3::interval

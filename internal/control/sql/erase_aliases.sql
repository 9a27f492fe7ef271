-- Removes the aliases of stream $2 of tenant $1. It reads all aliases of the tenant. Index: aliases_pkey. Locks: the rows.
delete from {control}.aliases where tenant = {tenant_id $1::text} and stream_id = $2::text

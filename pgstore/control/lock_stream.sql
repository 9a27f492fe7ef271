-- Locks stream $2 of tenant $1 and returns its version, nothing if there is no such stream. Index: streams_pkey. Lock: the row FOR UPDATE
-- until the commit, so appends to the stream wait.
select s.version from {control}.tenants t join {tenant}.streams s on s.stream_id = $2::text where t.tenant = $1::text for update of s

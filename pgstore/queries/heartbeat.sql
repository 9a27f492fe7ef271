-- Extends the leases of a registered node, by the server's clock. $1 node, $2 lease duration in microseconds, $3 the
-- node's summary, null if it has not changed. Index: nodes_pkey. Locks: the node's row for a moment.
update {control}.nodes
   set heartbeat_at = clock_timestamp(), expires_at = clock_timestamp() + $2::bigint * interval '1 microsecond',
       summary = coalesce($3::jsonb, summary)
 where id = $1::uuid

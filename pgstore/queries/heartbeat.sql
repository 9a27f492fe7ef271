-- Registers a node, or extends its leases, by the server's clock. $1 node, $2 projections, $3 tenants, $4 key of its
-- session lock, $5 lease duration in microseconds, $6 the node's summary, null if it has not changed. Index: nodes_pkey.
-- Locks: the node's row for a moment.
insert into {control}.nodes as n (id, projections, tenants, session_key, expires_at, summary)
values ($1::uuid, $2::text[], $3::text[], $4::bigint, clock_timestamp() + $5::bigint * interval '1 microsecond', coalesce($6::jsonb, '{}'))
on conflict (id) do update
   set heartbeat_at = clock_timestamp(), expires_at = excluded.expires_at, summary = coalesce($6::jsonb, n.summary)

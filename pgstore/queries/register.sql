-- Registers a node, or extends its leases as heartbeat.sql does. $1 node, $2 projections, $3 tenants, $4 and $5 the
-- filters, each as a projection and an entry. $6 key of its session lock, $7 lease duration in microseconds, $8 name.
-- The summary of a new node says that it runs nothing. Index: nodes_pkey. Locks: the node's row for a moment.
insert into {control}.nodes (id, name, projections, tenants, filtered, filters, session_key, expires_at, summary)
values ($1::uuid, $8::text, $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint, clock_timestamp() + $7::bigint * interval '1 microsecond', '{}')
on conflict (id) do update set heartbeat_at = clock_timestamp(), expires_at = excluded.expires_at

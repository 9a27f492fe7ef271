-- Says that the node is alive, by the server's clock. Index: nodes_pkey. Locks: the node's row for a moment.
insert into {control}.nodes as n (id, projections, expires_at)
values ($1::uuid, $2::text[], clock_timestamp() + $3::bigint * interval '1 microsecond')
on conflict (id) do update set heartbeat_at = clock_timestamp(), expires_at = excluded.expires_at

-- Returns the nodes with their summaries, and how many leases each holds. It scans nodes, and the index of the owners,
-- which takes some 5 ms with 100,000 leases. Durations are microseconds. Index: leases_owner_idx. Locks nothing.
select n.id::text, n.name, n.expires_at > clock_timestamp() as alive, n.draining, n.projections, n.tenants, n.filtered, n.filters, n.started_at, n.heartbeat_at,
       (extract(epoch from clock_timestamp() - n.heartbeat_at) * 1000000)::bigint as silent,
       (select count(*) from {control}.leases l where l.owner = n.id) as leases,
       n.summary
  from {control}.nodes n
 order by n.started_at, n.id

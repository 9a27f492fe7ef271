-- Returns the erasures of tenant $1 in their order. It scans and sorts the erasures. Needs no index, locks nothing.
select id, coalesce(stream_id, ''), positions, reason, requested_at, ended_at, events, types, applied, delivered
  from {control}.erasures where tenant = {tenant_id $1::text} order by id

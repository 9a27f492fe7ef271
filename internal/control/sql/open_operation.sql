-- Returns the open operation on projection $2 of tenant $1. Index: operations_open_idx. Locks nothing.
select o.id, $1::text, o.name, o.kind, o.holds, o.options, o.epoch, coalesce(o.node::text, ''), o.requested_at, o.started_at, o.ended_at,
       coalesce(o.code, ''), coalesce(o.error, '')
  from {control}.operations o
 where o.tenant = {tenant_id $1::text} and o.name = $2::text and o.ended_at is null

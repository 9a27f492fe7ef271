-- Inserts an operation on projection $2 of tenant $1, unless it has an open one, and returns its number. $3 kind, $4 names
-- of the projections to hold, $5 options, $6 the node that carries it out, empty for any. Index: operations_open_idx. Locks: the new row.
insert into {control}.operations (tenant, name, kind, holds, options, node, requested_at)
values ({tenant_id $1::text}, $2::text, $3::text, $4::text[], $5::text, nullif($6::text, '')::uuid, {now})
on conflict (tenant, name) where ended_at is null do nothing
returning id

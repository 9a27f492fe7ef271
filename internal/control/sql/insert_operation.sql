-- Inserts an operation on projection $2 of tenant $1, unless it has an open one, and returns its number. $3 kind, $4 names
-- of the projections to hold, $5 options. Index: operations_open_idx. Locks: the new row.
insert into {control}.operations (tenant, name, kind, holds, options, requested_at)
values ({tenant_id $1::text}, $2::text, $3::text, $4::text[], $5::text, {now})
on conflict (tenant, name) where ended_at is null do nothing
returning id

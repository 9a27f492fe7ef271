-- Inserts the rows $2 of copy_retired_projections.sql into tenant $1. Index: retired_projections_pkey. Locks: the new rows, and their
-- tenant FOR KEY SHARE.
insert into {control}.retired_projections (tenant, name, successor, reason, retired_at)
select {tenant_id $1::text}, list.value->>'name', list.value->>'successor', list.value->>'reason', {time list.value->>'at'}
  from {objects $2::jsonb}

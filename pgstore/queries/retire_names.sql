-- Retires the names $2 of the tenants $1, for the reasons $3 and with the successors $4 (empty: none), all in order. Names
-- that are retired already change. Index: retired_projections_pkey. Locks: the rows.
insert into {control}.retired_projections (tenant, name, reason, successor)
select r.tenant, r.name, r.reason, nullif(r.successor, '')
  from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as r (tenant, name, reason, successor)
    on conflict (tenant, name) do update set reason = excluded.reason, successor = excluded.successor

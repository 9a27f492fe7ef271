-- Retires the name $2 of tenant $1, for the reason $3 and with the successor $4 (empty: none). A name that is retired already changes.
-- Index: retired_projections_pkey. Lock: the row.
insert into {control}.retired_projections (tenant, name, reason, successor) values ($1::text, $2::text, $3::text, nullif($4::text, ''))
    on conflict (tenant, name) do update set reason = excluded.reason, successor = excluded.successor

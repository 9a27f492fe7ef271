-- Inserts retired names of tenant $1. $2 to $5 are the columns of transfer.RetiredProjections. Index:
-- retired_projections_pkey. Locks: the new rows, and their tenant FOR KEY SHARE.
insert into {control}.retired_projections (tenant, name, successor, reason, retired_at)
select $1::text, r.name, r.successor, r.reason, timestamptz 'epoch' + r.retired_at * interval '1 microsecond'
  from unnest($2::text[], $3::text[], $4::text[], $5::bigint[]) as r (name, successor, reason, retired_at)

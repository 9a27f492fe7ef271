-- Returns the retired names of tenant $1 after name $2, at most $3, in order. The columns are those of
-- transfer.RetiredProjections. Locks nothing. Index: retired_projections_pkey.
select x.name, x.successor, x.reason, (extract(epoch from x.retired_at) * 1000000)::bigint
  from {control}.retired_projections x
 where x.tenant = $1::text and x.name > $2::text order by x.name limit $3::bigint

-- Reports whether projection $2 of tenant $1 has taken the place of another one, and whether that one was ever in use.
-- Index: retired_projections_pkey. Locks nothing.
select count(*) > 0, count(*) filter (where reason <> 'unused') > 0
  from {control}.retired_projections where tenant = {tenant_id $1::text} and successor = $2::text

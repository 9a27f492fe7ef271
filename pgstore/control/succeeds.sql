-- Reports whether projection $2 of tenant $1 has taken the place of another one, and whether that one was ever in use.
-- Index: retired_projections_pkey. Locks nothing.
select count(*) > 0, count(*) filter (where x.reason <> 'unused') > 0
  from {control}.retired_projections x where x.tenant = $1::text and x.successor = $2::text

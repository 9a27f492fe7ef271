-- Returns the retired ones of the names $2 in the tenants $1. Index: retired_projections_pkey. Locks nothing.
select x.tenant, x.name, x.reason, coalesce(x.successor, '')
  from {control}.retired_projections x
 where x.tenant = any($1::text[]) and x.name = any($2::text[])

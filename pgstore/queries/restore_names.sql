-- Deletes the names $2 of the tenants $1, both in pairs, from the retired ones. Index: retired_projections_pkey. Locks: the
-- rows.
delete from {control}.retired_projections x
 using unnest($1::text[], $2::text[]) as r (tenant, name) where x.tenant = r.tenant and x.name = r.name

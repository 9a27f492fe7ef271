-- Returns the position of the newest event of tenant $1, or 0 if it has none. Indexes: tenants_pkey, events_pkey. Locks nothing.
select coalesce((select max(e.global_seq) from {tenant}.events e), 0) from {control}.tenants t where t.tenant = $1::text

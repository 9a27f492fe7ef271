-- Returns the highest visible position of tenant $1, or 0 if there is none. Indexes: tenants_pkey, events_pkey backwards. Locks nothing.
select coalesce((select max(e.global_seq) from {tenant}.events e), 0) from {control}.tenants t where t.tenant = $1::text

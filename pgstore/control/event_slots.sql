-- Returns the slots of the events of tenant $1 at the positions $2. Locks nothing. Indexes: tenants_pkey, events_pkey.
select e.global_seq, e.slot from {control}.tenants t join {tenant}.events e on e.global_seq = any($2::bigint[]) where t.tenant = $1::text

-- Redacts the events of tenant $1 at the positions $2: $3 is their body from now on, and $4 are their headers. Indexes: tenants_pkey,
-- events_pkey. Locks: the rows, and ROW EXCLUSIVE on events, as an append does.
update {tenant}.events e set body = $3::jsonb, headers = $4::jsonb, causation_id = null, correlation_id = null
  from {control}.tenants t where t.tenant = $1::text and e.global_seq = any($2::bigint[])

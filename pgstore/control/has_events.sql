-- Reports whether tenant $1 has events with $2 < position <= $3 in the slots $4 <= slot < $5, of the types $6 (null: any). Indexes:
-- tenants_pkey, events_pkey. Locks nothing.
select exists (select from {tenant}.events e
                where e.global_seq > $2::bigint and e.global_seq <= $3::bigint and e.slot >= $4::integer and e.slot < $5::integer
                  and ($6::text[] is null or e.type = any($6::text[])))
  from {control}.tenants t where t.tenant = $1::text

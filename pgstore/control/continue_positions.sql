-- Sets the last position of tenant $1 to $2, unless a higher position was drawn already, and returns it. The sequence keeps this even if the transaction is
-- rolled back. Indexes: tenants_pkey, those of the catalog. Locks nothing.
select setval(x.s, greatest($2::bigint, coalesce(pg_sequence_last_value(x.s), 0)))
  from (select pg_get_serial_sequence(format('%I.events', t.schema_name), 'global_seq')::regclass as s
          from {control}.tenants t where t.tenant = $1::text offset 0) x
 where $2::bigint > 0

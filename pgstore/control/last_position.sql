-- Returns the last position that tenant $1 has given to an event, which may have been deleted or rolled back. Indexes: tenants_pkey,
-- events_pkey backwards, those of the catalog. Locks nothing.
select greatest(coalesce(pg_sequence_last_value(pg_get_serial_sequence(format('%I.events', t.schema_name), 'global_seq')::regclass), 0),
                (select coalesce(max(e.global_seq), 0) from {tenant}.events e))
  from {control}.tenants t where t.tenant = $1::text

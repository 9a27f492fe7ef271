-- Saves a snapshot of stream $2 of tenant $1, after the event with version $3 at position $4 of the time $5, with the fingerprint $6 and the
-- state $7. It replaces another one, unless that is of another generation than $8: an erasure has ended the one in which the state was
-- loaded. One with another fingerprint is replaced if it is $9 or more events older, or from after this one: so two releases do not replace
-- each other's with each append. Indexes: tenants_pkey, snapshots_pkey. Lock: the row.
insert into {control}.snapshots as s (tenant, stream_id, version, position, event_time, fingerprint, state, generation)
select {tenant_id $1::text}, $2::text, $3::bigint, $4::bigint, $5::timestamptz, $6::text, $7::text, $8::bigint
  from {control}.tenants t where t.{tenant_name} = $1::text
    on conflict (tenant, stream_id) do update
   set version = excluded.version, position = excluded.position, event_time = excluded.event_time, fingerprint = excluded.fingerprint, state = excluded.state
 where s.generation = excluded.generation
   and (s.state is null or s.fingerprint = excluded.fingerprint or s.version + $9::bigint <= excluded.version or s.version > excluded.version)

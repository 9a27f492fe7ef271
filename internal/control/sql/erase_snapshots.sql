-- Removes the states of the snapshots of the streams $2 of tenant $1, and begins their next generations. Indexes: tenants_pkey,
-- snapshots_pkey. Locks: the rows.
insert into {control}.snapshots as s (tenant, stream_id, generation)
select {tenant_id $1::text}, list.value, 1 from {control}.tenants t, {rows $2::text[]} where t.{tenant_name} = $1::text
    on conflict (tenant, stream_id) do update
   set version = 0, position = 0, event_time = null, fingerprint = null, state = null, generation = s.generation + 1

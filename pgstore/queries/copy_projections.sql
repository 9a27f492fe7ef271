-- Inserts projections of tenant $1, which is suspended, with free leases that sleep. $2 to $31 are the columns of
-- transfer.Projections. Each id is that of the source plus {projection_ids}. Indexes: projections_pkey,
-- projections_tenant_name_partition_key, leases_pkey. Locks: the new rows.
with r as (
    select * from unnest($2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[], $10::text[],
                         $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[],
                         $19::bigint[], $20::bigint[], $21::bigint[], $22::text[], $23::bigint[], $24::bigint[], $25::bigint[], $26::bigint[], $27::bigint[],
                         $28::bigint[], $29::bigint[], $30::bigint[], $31::bigint[])
        as r (id, name, partition, partitions, slot_from, slot_to, passed, token, desired_state, failed_reason, failed_epoch, halted, skipped,
              parked, failing_position, attempts, crash_position, crash_attempts, crash_since, failing_since, last_error, last_error_at,
              missing_object, delivers, rebuild_since, rebuild_from, rebuild_to, epoch, checkpoint, crash_count)
), inserted as (
    insert into {control}.projections
        (id, tenant, name, partition, partitions, slot_from, slot_to, passed_from, passed_to, passed_upto, token, desired_state, tenant_suspended,
         failed_reason, failed_epoch, halted, skipped, parked, failing_position, attempts, crash_position, crash_attempts, crash_since,
         failing_since, last_error, last_error_at, missing_object, delivers, rebuild_since, rebuild_from, rebuild_to)
    overriding system value
    select r.id + {projection_ids}, $1::text, r.name, r.partition, r.partitions, r.slot_from, r.slot_to,
           array(select (x.v ->> 0)::integer from jsonb_array_elements(r.passed::jsonb) with ordinality as x (v, n) order by x.n),
           array(select (x.v ->> 1)::integer from jsonb_array_elements(r.passed::jsonb) with ordinality as x (v, n) order by x.n),
           array(select (x.v ->> 2)::bigint from jsonb_array_elements(r.passed::jsonb) with ordinality as x (v, n) order by x.n),
           r.token::uuid, r.desired_state, true, r.failed_reason, r.failed_epoch, r.halted <> 0, r.skipped, r.parked, r.failing_position,
           r.attempts, r.crash_position, r.crash_attempts, timestamptz 'epoch' + r.crash_since * interval '1 microsecond',
           timestamptz 'epoch' + r.failing_since * interval '1 microsecond', r.last_error,
           timestamptz 'epoch' + r.last_error_at * interval '1 microsecond', r.missing_object <> 0, r.delivers <> 0,
           timestamptz 'epoch' + r.rebuild_since * interval '1 microsecond', r.rebuild_from, r.rebuild_to
      from r
)
insert into {control}.leases (id, epoch, checkpoint, crash_count, asleep) select r.id + {projection_ids}, r.epoch, r.checkpoint, r.crash_count, true from r

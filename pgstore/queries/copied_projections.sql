-- Returns the projections of tenant $1 after id $2, at most $3, in order. The columns are those of
-- transfer.Projections. {projection_ids} is what the copy added to ids. Locks nothing. Indexes: projections_pkey or
-- projections_tenant_name_partition_key, leases_pkey.
select p.id - {projection_ids}::bigint, p.name, p.partition::bigint, p.partitions::bigint, p.slot_from::bigint, p.slot_to::bigint,
       (select coalesce(jsonb_agg(jsonb_build_array(x.f, x.t, x.u) order by x.n), '[]')
          from unnest(p.passed_from, p.passed_to, p.passed_upto) with ordinality as x (f, t, u, n))::text,
       p.token::text, p.desired_state, p.failed_reason, p.failed_epoch, p.halted::integer::bigint, p.skipped, p.parked,
       p.failing_position, p.attempts::bigint, p.crash_position, p.crash_attempts::bigint,
       (extract(epoch from p.crash_since) * 1000000)::bigint, (extract(epoch from p.failing_since) * 1000000)::bigint,
       p.last_error, (extract(epoch from p.last_error_at) * 1000000)::bigint, p.missing_object::integer::bigint,
       p.delivers::integer::bigint, (extract(epoch from p.rebuild_since) * 1000000)::bigint, p.rebuild_from, p.rebuild_to,
       l.epoch, l.checkpoint, l.crash_count::bigint
  from {control}.projections p join {control}.leases l on l.id = p.id
 where p.tenant = $1::text and p.id > $2::bigint + {projection_ids} order by p.id limit $3::bigint

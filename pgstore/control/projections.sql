-- Returns the projections that a filter selects, each with its lease, the number and age of its parked events, and the
-- operation that holds it or is open. $1 tenants, $2 names, $3 exact rows as JSON arrays of tenant, name and partition, $4
-- states, $5 owner, $6 not this owner, $7 whether with parked events, $8 to $10 the row after which the page begins, $8 ''
-- for the first page, $11 limit. Null means any. Durations are microseconds. It is planned for its arguments: a filter by tenant
-- and name reads only the rows of those projections, and a page without a filter by state reads about as many rows as it
-- returns. A filter by state reads the rows of all projections that its other fields select, which takes up to 0.15 s with
-- 100,000. Locks nothing. Indexes: tenants_pkey, projections_tenant_name_partition_key, leases_pkey, leases_owner_idx,
-- nodes_pkey, projections_parked_idx, dead_letters_projection_id_position_idx, operations_open_idx, operations_pkey.
select p.tenant, p.name, p.partition, p.partitions, s.state, case when p.tenant_suspended then 'pause' else p.desired_state end,
       case when t.state = 'active' and t.paused then 'paused' else t.state end,
       coalesce(case when p.halted or p.failed_epoch = l.epoch then p.failed_reason end, ''),
       p.halted, p.skipped, p.failing_position, p.attempts, coalesce(p.last_error, ''), p.last_error_at, p.next_attempt_at,
       coalesce(l.owner::text, ''), coalesce(n.name, ''), l.epoch, l.checkpoint, p.parked, d.oldest, o.alive,
       coalesce(extract(epoch from clock_timestamp() - case when l.owner is null then l.free_since else n.expires_at end) * 1000000, 0)::bigint
           as not_owned,
       p.rebuild_since, coalesce(extract(epoch from clock_timestamp() - p.rebuild_since) * 1000000, 0)::bigint, p.rebuild_from, p.rebuild_to,
       coalesce(q.id, 0), coalesce(q.kind, ''), coalesce(q.node::text, ''), q.requested_at, q.started_at, coalesce(q.error, ''),
       p.held_by is not null
  from {control}.projections p
  join {control}.leases l on l.id = p.id
  join {control}.tenants t on t.tenant = p.tenant
  left join {control}.nodes n on n.id = l.owner
 cross join lateral (select coalesce(n.expires_at > clock_timestamp(), false) as alive) o
 cross join lateral (
       select case when p.suspended or p.desired_state <> 'run' then 'paused'
                   when p.halted then 'failed'
                   when not o.alive then 'not owned'
                   when p.failed_epoch = l.epoch and p.failed_reason <> '' then 'failed'
                   when p.failing_position <= l.checkpoint then 'elsewhere'
                   when p.missing_object then 'missing object'
                   else 'waiting' end as state) s
  left join lateral (select first_failed_at as oldest from {control}.dead_letters d
                      where p.parked > 0 and d.projection_id = p.id and d.state in ('parked', 'replaying')
                      order by d.position limit 1) d on true
  left join lateral (select r.id, r.kind, r.node, r.requested_at, r.started_at, r.error from {control}.operations r
                      where r.id = coalesce(p.held_by, (select x.id from {control}.operations x
                                                         where x.tenant = p.tenant and x.name = p.name and x.ended_at is null))
                     offset 0) q on true
 where ($1::text[] is null or p.tenant = any($1::text[]))
   and ($2::text[] is null or p.name = any($2::text[]))
   and ($3::text[] is null or p.id = any(array(
        select i.id from (select value::jsonb as id from unnest($3::text[]) as x (value)) x
          join {control}.projections i on i.tenant = x.id ->> 0 and i.name = x.id ->> 1 and i.partition = (x.id ->> 2)::integer)))
   and ($4::text[] is null or s.state = any($4::text[]))
   and ($5::uuid is null or l.owner = $5::uuid)
   and ($6::uuid is null or l.owner is distinct from $6::uuid)
   and (not $7::boolean or p.parked > 0)
   and ($8::text = '' or (p.tenant, p.name, p.partition) > ($8::text, $9::text, $10::integer))
 order by p.tenant, p.name, p.partition
 limit $11::integer

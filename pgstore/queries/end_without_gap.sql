-- Returns the highest position of tenant $1, at most $2, up to which no position is missing after the highest checkpoint of
-- its projections. If that is above $2, the tenant was restored, and no position counts as settled. It follows begin_read.sql in
-- one message. Indexes: projections_tenant_name_partition_key, leases_pkey, events_pkey, from that checkpoint to the first gap.
-- Locks nothing.
with floor as materialized (
    select case when f.position <= $2::text::bigint then f.position else 0 end as position
      from (select max(greatest(l.checkpoint, (select max(u.position) from unnest(p.passed_upto) as u(position)))) as position
              from {control}.leases l join {control}.projections p on p.id = l.id
             where p.tenant = $1::text) f
)
select case when not exists (select from {tenant}.events e where e.global_seq = floor.position + 1) then floor.position
            else (select e.global_seq from {tenant}.events e
                   where e.global_seq > floor.position
                     and (e.global_seq >= $2::text::bigint or not exists (select from {tenant}.events n where n.global_seq = e.global_seq + 1))
                   order by e.global_seq limit 1) end
  from floor

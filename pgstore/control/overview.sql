-- Counts what the summaries of living nodes do not count: projections without a living owner, and parked events. $1 is
-- how long a projection may have no living owner. The projections of the names $2 are counted for each tenant.
-- It finds owners by index skips from one to the next, and then reads the leases of dead ones and those without an
-- owner: 0.3 ms if nodes run nearly all of 100,000 projections, some 70 ms if they run none. "offset 0" makes the
-- planner expect few leases for each dead owner. It scans tenants, and the projections with parked events. Locks
-- nothing. Indexes: leases_owner_idx, nodes_pkey, projections_pkey, projections_parked_idx,
-- dead_letters_first_failed_at_idx.
with recursive owner as (
    (select l.owner as id from {control}.leases l where l.owner is not null order by l.owner limit 1)
    union all
    select (select l.owner from {control}.leases l where l.owner > o.id order by l.owner limit 1) from owner o where o.id is not null
), dead as (
    select o.id, n.expires_at
      from owner o left join {control}.nodes n on n.id = o.id
     where o.id is not null and coalesce(n.expires_at <= clock_timestamp(), true)
), unowned as (
    select p.suspended or p.desired_state <> 'run' as paused, p.halted, l.free_since as since, p.name, p.tenant
      from {control}.leases l join {control}.projections p on p.id = l.id
     where l.owner is null
    union all
    select w.paused, w.halted, dead.expires_at, w.name, w.tenant
      from dead cross join lateral (
           select p.suspended or p.desired_state <> 'run' as paused, p.halted, p.name, p.tenant from {control}.leases l join {control}.projections p on p.id = l.id
            where l.owner = dead.id offset 0) w
), counted as (
    select count(*) filter (where u.paused) as paused,
           count(*) filter (where not u.paused and u.halted) as halted
      from unowned u
), not_owned as (
    select u.name, case when u.name = any($2::text[]) then u.tenant else '' end as tenant, count(*) as n,
           count(*) filter (where u.since < clock_timestamp() - $1::interval) as overdue
      from unowned u where not u.paused and not u.halted
     group by 1, 2
), tenants as (
    select case when t.state = 'active' and t.paused then 'paused' else t.state end as state, count(*) as n from {control}.tenants t group by 1
), oldest as (
    select d.projection_id, d.first_failed_at
      from {control}.dead_letters d
     where d.state in ('parked', 'replaying')
     order by d.first_failed_at limit 1
)
select array(select state from tenants order by state), array(select n from tenants order by state), c.paused, c.halted,
       array(select name from not_owned o order by o.name, o.tenant), array(select tenant from not_owned o order by o.name, o.tenant),
       array(select n from not_owned o order by o.name, o.tenant), array(select overdue from not_owned o order by o.name, o.tenant),
       (select coalesce(sum(p.parked), 0)::bigint from {control}.projections p where p.parked > 0),
       oldest.first_failed_at, coalesce(p.tenant, ''), coalesce(p.name, ''), coalesce(p.partition, 0)
  from counted c
  left join oldest on true
  left join {control}.projections p on p.id = oldest.projection_id

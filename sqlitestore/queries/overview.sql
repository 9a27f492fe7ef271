-- Counts projections without a living owner that are paused or halted, and parked events. ?1 is the living owner of the
-- file, '' for none. It reads no lease that the living owner holds. It scans the index of projections with parked events.
-- Indexes: leases by owner, projections and dead letters by what is parked, and primary keys. Locks nothing.
with unowned as (
    select id from millrace_leases where owner is null
    union all
    select id from millrace_leases where owner < ?1
    union all
    select id from millrace_leases where owner > ?1
), counted as (
    select count(*) filter (where p.suspended or p.desired_state <> 'run') as paused,
           count(*) filter (where not p.suspended and p.desired_state = 'run' and p.halted) as halted
    from unowned u cross join millrace_projections p on p.id = u.id
), oldest as (
    select d.projection, d.first_failed_at from millrace_dead_letters d
    where d.state in ('parked', 'replaying') order by d.first_failed_at limit 1
)
select c.paused, c.halted,
       (select coalesce(sum(p.parked), 0) from millrace_projections p where p.parked > 0),
       o.first_failed_at, coalesce(t.name, ''), coalesce(p.name, ''), coalesce(p.partition, 0)
from counted c left join oldest o on true
left join millrace_projections p on p.id = o.projection
left join millrace_tenants t on t.id = p.tenant

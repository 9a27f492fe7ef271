-- Counts what the summary of the node does not count: tenants, projections without a living owner, and parked events. ?1 is how
-- long a projection may have no living owner. The projections of the names ?2 are counted for each tenant. :living is the living
-- owner of the file, '' for none, and :seen when the last owner was seen alive. It reads no lease that the living owner holds. It
-- scans tenants, the row of the owner, and the index of projections with parked events. Indexes: leases by owner, projections
-- and dead letters by what is parked, and primary keys. Locks nothing. It sorts the names that it found.
with unowned as materialized (
    select p.name, p.tenant, p.suspended or p.desired_state <> 'run' as paused, p.halted,
           coalesce(u.free_since, (select case when n.id = u.owner then :seen else n.started_at end from millrace_nodes n), 0) as since
    from (select id, owner, free_since from millrace_leases where owner is null
          union all
          select id, owner, free_since from millrace_leases where owner < :living
          union all
          select id, owner, free_since from millrace_leases where owner > :living) u
    cross join millrace_projections p on p.id = u.id
), counted as (
    select count(*) filter (where paused) as paused, count(*) filter (where not paused and halted) as halted from unowned
), not_owned as materialized (
    select u.name, case when u.name in (select value from json_each(?2)) then t.name else '' end as of_tenant, count(*) as n,
           count(*) filter (where u.since < :now - ?1) as overdue
    from unowned u cross join millrace_tenants t on t.id = u.tenant
    where not u.paused and not u.halted
    group by u.name, of_tenant
), states as (
    select case when state = 'active' and paused then 'paused' else state end as state, count(*) as n from millrace_tenants group by 1
), oldest as (
    select d.projection, d.first_failed_at from millrace_dead_letters d
    where d.state in ('parked', 'replaying') order by d.first_failed_at limit 1
)
select (select json_group_array(state order by state) from states), (select json_group_array(n order by state) from states), c.paused, c.halted,
       (select json_group_array(name order by name, of_tenant) from not_owned), (select json_group_array(of_tenant order by name, of_tenant) from not_owned),
       (select json_group_array(n order by name, of_tenant) from not_owned), (select json_group_array(overdue order by name, of_tenant) from not_owned),
       (select coalesce(sum(p.parked), 0) from millrace_projections p where p.parked > 0),
       o.first_failed_at, coalesce(t.name, ''), coalesce(p.name, ''), coalesce(p.partition, 0)
from counted c left join oldest o on true
left join millrace_projections p on p.id = o.projection
left join millrace_tenants t on t.id = p.tenant

-- Returns the leases of runnable projections that have no owner or a dead one. It selects by the names of projections
-- and tenants; the caller applies the filters. $1 projections, $2 tenants (empty: all), $3 whether an expired heartbeat
-- counts as a death: a node that was itself cut off cannot rely on that, $4 whether leases without an owner are returned. A node that was deregistered or marked dead is
-- dead in any case. All nodes run this often, and it nearly always finds nothing. So it does not scan leases: it finds
-- the owners by index skips from one to the next, and then those without a living node. With 20,000 leases it takes 0.4
-- ms instead of 20. The skips go backwards, and skip_in_order.sql comes first: see there. "offset 0" keeps the planner from joins
-- over all rows. Locks nothing. Indexes: leases_owner_idx, leases_free_idx, nodes_pkey, projections_pkey.
with recursive owner as (
    (select l.owner as id from {control}.leases l where l.owner is not null order by l.owner desc limit 1)
    union all
    select (select l.owner from {control}.leases l where l.owner < o.id order by l.owner desc limit 1) from owner o where o.id is not null
), dead as (
    select o.id from owner o
     where o.id is not null
       and not exists (select from (select n.expires_at, n.heartbeat_at from {control}.nodes n
                                     where n.id between o.id and o.id order by n.id desc limit 1) n
                        where n.expires_at > clock_timestamp() or not $3::boolean and n.expires_at > n.heartbeat_at)
), unowned as (
    select l.id from {control}.leases l where l.owner is null and not l.asleep and $4::boolean
    union all
    select l.id from dead cross join lateral (select l.id from {control}.leases l where l.owner = dead.id offset 0) l
)
select w.id, w.tenant, w.name, w.partition
  from unowned cross join lateral (
       select p.id, p.tenant, p.name, p.partition from {control}.projections p
        where p.id = unowned.id and p.desired_state = 'run' and not p.suspended and p.name = any($1::text[])
          and (cardinality($2::text[]) = 0 or p.tenant = any($2::text[])) offset 0) w

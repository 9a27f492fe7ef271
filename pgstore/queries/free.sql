-- The leases that nobody holds, or whose owner is dead, of projections that are wanted and that the node knows. $1
-- projections, $2 tenants (none: all), $3 whether a heartbeat that ran out means death: a node that was itself cut off
-- cannot tell. A node that departed or was buried is dead in any case.
-- Every node asks all the time, and nearly always nothing is free. So the owners are looked at by jumps from one to the
-- next (dead: those without a living node) and not by reading leases: with 20,000 of them 0.4 ms instead of 20.
-- "offset 0" keeps these looks from being planned as joins over all rows.
-- Locks nothing. Indexes: leases_owner_idx, nodes_pkey, projections_pkey.
with recursive owner as (
    (select l.owner as id from {control}.leases l where l.owner is not null order by l.owner limit 1)
    union all
    select (select l.owner from {control}.leases l where l.owner > o.id order by l.owner limit 1) from owner o where o.id is not null
), dead as (
    select o.id from owner o
     where o.id is not null
       and not exists (select from {control}.nodes n where n.id = o.id
                          and (n.expires_at > clock_timestamp() or not $3::boolean and n.expires_at > n.heartbeat_at))
), loose as (
    select l.id from {control}.leases l where l.owner is null
    union all
    select l.id from dead cross join lateral (select l.id from {control}.leases l where l.owner = dead.id offset 0) l
)
select w.id, w.tenant, w.name, w.partition
  from loose cross join lateral (
       select p.id, p.tenant, p.name, p.partition from {control}.projections p
        where p.id = loose.id and p.desired_state = 'run' and p.name = any($1::text[])
          and (cardinality($2::text[]) = 0 or p.tenant = any($2::text[])) offset 0) w

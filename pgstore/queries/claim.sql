-- Takes leases that nobody holds or whose owner's heartbeat ran out, and raises their epochs. It waits for nobody: a
-- row that somebody else is taking is passed over. $1 node, $2 projections, $3 tenants, $4 limit.
-- Every node asks all the time, and nearly always nothing is free. So it is first looked once whether anything is, by
-- jumps from owner to owner (dead: those without a living node) and not by reading leases: with 20,000 of them 0.2 ms
-- instead of 20. "offset 0" keeps these looks from being planned as joins over all rows.
-- Locks: the taken rows of leases FOR NO KEY UPDATE until the commit. Indexes: leases_owner_idx, nodes_pkey,
-- projections_pkey; where something is free it reads all of leases.
with recursive owner as (
    (select l.owner as id from {control}.leases l where l.owner is not null order by l.owner limit 1)
    union all
    select (select l.owner from {control}.leases l where l.owner > o.id order by l.owner limit 1) from owner o where o.id is not null
), dead as (
    select o.id from owner o
     where o.id is not null
       and not exists (select from {control}.nodes n where n.id = o.id and n.expires_at > clock_timestamp())
), loose as (
    select l.id from {control}.leases l where l.owner is null
    union all
    select l.id from dead cross join lateral (select l.id from {control}.leases l where l.owner = dead.id offset 0) l
), free as (
    select l.id
      from {control}.leases l
      join {control}.projections p on p.id = l.id
     where (select exists (select from loose cross join lateral (
                select from {control}.projections p
                 where p.id = loose.id and p.name = any($2::text[]) and p.tenant = any($3::text[]) offset 0) wanted))
       and p.name = any($2::text[]) and p.tenant = any($3::text[])
       and (l.owner is null
            or not exists (select from {control}.nodes n where n.id = l.owner and n.expires_at > clock_timestamp()))
     order by l.id
     limit $4::bigint
       for no key update of l skip locked
)
update {control}.leases l
   set owner = $1::uuid, epoch = l.epoch + 1, unclean = case when l.owner is null then l.unclean else l.unclean + 1 end
  from free join {control}.projections p on p.id = free.id
 where l.id = free.id
returning l.id, p.tenant, p.name, p.partition, l.owner::text, l.epoch, l.checkpoint, l.unclean, p.paused, p.attempts, p.failing_position

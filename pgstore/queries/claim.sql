-- Takes leases that are still free or whose owner is still dead, and raises their epochs. It does not wait: rows that
-- another transaction has locked are skipped. $1 node, $2 rows, $3 as in free_leases.sql. taken reports whether the
-- previous owner was dead. It also records which of the projections deliver: $4 are the names of those that do on the
-- node. "offset 0" prevents a scan of projections for a few rows. Each owner is looked up once: that reads all heartbeats that an
-- open snapshot keeps, so it would be slow for each lease. "coalesce" keeps the planner from leases_owner_idx. Locks, until the commit:
-- the taken rows of leases, and those of projections where that has changed, FOR NO KEY UPDATE. Indexes: leases_pkey, nodes_pkey,
-- projections_pkey.
with owners as materialized (
    select distinct l.owner from (select l.owner from {control}.leases l where l.id = any($2::integer[]) offset 0) l where l.owner is not null
), dead as materialized (
    select o.owner from owners o
     where not exists (select from {control}.nodes n where n.id = o.owner
                          and (n.expires_at > clock_timestamp() or not $3::boolean and n.expires_at > n.heartbeat_at))
), free as (
    select l.id, l.owner
      from {control}.leases l
     cross join lateral (select from {control}.projections p where p.id = l.id and p.desired_state = 'run' and not p.suspended offset 0) p
     where l.id = any($2::integer[])
       and (l.owner is null or coalesce(l.owner = any(array(select d.owner from dead d)), false))
     order by l.id
       for no key update of l skip locked
), delivers as (
    update {control}.projections p set delivers = not p.delivers
      from free where p.id = free.id and p.delivers <> (p.name = any($4::text[]))
)
update {control}.leases l
   set owner = $1::uuid, epoch = l.epoch + 1, free_since = null,
       crash_count = case when l.owner is null then l.crash_count else l.crash_count + 1 end
  from free
 where l.id = free.id
returning l.id, free.owner is not null as taken, transaction_timestamp()

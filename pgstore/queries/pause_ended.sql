-- Reports whether projections are stopped and whether their leases are free, with a row for each partition. They are
-- stopped if the operation $3 holds them or, where $3 is null, if they are paused. If no living node holds a lease of
-- them, it waits for claims in progress: a claim that begins later sees that the projections are stopped. Then it
-- releases the leases of dead owners and raises their epochs, so that the owners cannot commit if they are alive after
-- all. Then taken has the row of the lease. $1 tenant, $2 names. Indexes: projections_tenant_name_partition_key,
-- leases_pkey, nodes_pkey. Locks: the rows of leases that no living node holds FOR NO KEY UPDATE, until the commit that
-- follows at once.
with p as (
    select id, case when $3::bigint is null then desired_state = 'pause' else coalesce(held_by = $3::bigint, false) end as stopped
      from {control}.projections where tenant = $1::text and name = any($2::text[])
), alive as materialized (
    select count(*) as leases
      from p join {control}.leases l on l.id = p.id
      join {control}.nodes n on n.id = l.owner and n.expires_at > clock_timestamp()
), held as materialized (
    select l.id, l.owner from {control}.leases l
     where l.id in (select p.id from p where p.stopped) and (select leases from alive) = 0
     order by l.id
       for no key update of l
), dead as (
    select h.id from held h
     where h.owner is not null and not exists (select from {control}.nodes n where n.id = h.owner and n.expires_at > clock_timestamp())
), taken as (
    update {control}.leases l set owner = null, free_since = clock_timestamp(), epoch = l.epoch + 1, crash_count = l.crash_count + 1
      from dead where l.id = dead.id
    returning l.id
)
select p.stopped, case when (select leases from alive) = 0 then h.owner is null or taken.id is not null else false end,
       coalesce(taken.id, 0), transaction_timestamp()
  from p
  left join held h on h.id = p.id
  left join taken on taken.id = p.id

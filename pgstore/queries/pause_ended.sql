-- Reports whether a projection is paused and whether its lease is free, with a row for each partition. If the owner of
-- a paused projection is dead, it releases the lease and raises its epoch, so that the owner cannot commit if it is
-- alive after all. taken then has the row. $1 tenant, $2 projection. Indexes: projections_tenant_name_partition_key, leases_pkey,
-- nodes_pkey. Locks: a row of leases that it takes FOR NO KEY UPDATE, until the commit that follows at once.
with p as (
    select id, desired_state from {control}.projections where tenant = $1::text and name = $2::text
), dead as (
    select l.id from p join {control}.leases l on l.id = p.id
     where p.desired_state = 'pause' and l.owner is not null
       and not exists (select from {control}.nodes n where n.id = l.owner and n.expires_at > clock_timestamp())
       for no key update of l skip locked
), taken as (
    update {control}.leases l set owner = null, free_since = clock_timestamp(), epoch = l.epoch + 1, crash_count = l.crash_count + 1
      from dead where l.id = dead.id
    returning l.id
)
select p.desired_state, l.owner is null or taken.id is not null, coalesce(taken.id, 0), transaction_timestamp()
  from p join {control}.leases l on l.id = p.id
  left join taken on taken.id = p.id

-- Reports whether a tenant is suspended and how many of its leases are not free. If no living node holds any, it waits
-- for claims in progress: a claim that begins later sees that the projection is suspended. Then it releases the leases
-- of dead owners and raises their epochs, so that the owners cannot commit if they are alive after all. taken has the
-- rows of these leases. $1 tenant. Indexes: tenants_pkey, projections_tenant_name_partition_key, leases_pkey,
-- nodes_pkey. Locks: the rows of leases that no living node holds FOR NO KEY UPDATE, until the commit that follows at
-- once.
with t as (
    select tenant, state <> 'active' or paused as suspended from {control}.tenants where tenant = $1::text
), alive as materialized (
    select count(*) as leases
      from t join {control}.projections p on p.tenant = t.tenant
      join {control}.leases l on l.id = p.id
      join {control}.nodes n on n.id = l.owner and n.expires_at > clock_timestamp()
     where t.suspended
), held as materialized (
    select l.id, l.owner from {control}.leases l
     where l.id in (select p.id from t join {control}.projections p on p.tenant = t.tenant where t.suspended)
       and (select leases from alive) = 0
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
select t.suspended, (select leases from alive) + (select count(*) from held h where h.owner is not null and h.id not in (select id from dead)),
       array(select id::bigint from taken), (extract(epoch from transaction_timestamp()) * 1000000)::bigint
  from t

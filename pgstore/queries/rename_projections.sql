-- Gives the projections with the names $2 in the tenants $1 the names $3, all three in order, and frees their leases. The
-- epochs rise, so that previous owners cannot commit. $4 are the rows whose owners are alive: their attempts in progress end,
-- and are not counted; see release.sql. $5 are the rows whose owners are dead: they count as crashed. The caller has locked
-- the rows. Indexes: projections_tenant_name_partition_key, leases_pkey, that of parked events. Locks: the rows of dead
-- letters until the commit.
with renamed as (
    update {control}.projections p
       set name = r.new_name,
           crash_attempts = p.crash_attempts - (p.crash_attempts > 0 and p.id = any($4::integer[]))::integer
      from unnest($1::text[], $2::text[], $3::text[]) as r (tenant, name, new_name)
     where p.tenant = r.tenant and p.name = r.name
    returning p.id
), replays as (
    update {control}.dead_letters d
       set open_replays = d.open_replays - 1, state = case when d.open_replays = 1 then 'parked' else d.state end,
           last_command = case when d.open_replays = 1 then 0 else d.last_command end
     where d.projection_id = any($4::integer[]) and d.state in ('parked', 'replaying') and d.state = 'replaying' and d.open_replays > 0
)
update {control}.leases l
   set owner = null, epoch = l.epoch + 1, free_since = case when l.owner is null then l.free_since else clock_timestamp() end,
       crash_count = l.crash_count + (l.id = any($5::integer[]))::integer
  from renamed where l.id = renamed.id

-- Inserts the rows and leases of projections that have none. $1 to $11 are arrays, with one element for each row:
-- tenants, names, partitions, numbers of partitions, first slots, the slots after the last ones, names without their
-- versions, versions, the names in earlier releases, or empty, the checkpoints with which they begin, and the keys of the
-- tenants for which these are valid, or 0. In a tenant with another key nothing is inserted. All rows of a projection get one
-- token. The planner takes missing for few rows, and would join it by comparing each row with all others; so there is no join
-- with it, and "offset 0" makes the rest a search in an index for each row, also before the tables were analyzed. Tenants
-- that do not exist or are not active are left out, and so are retired names and projections that exist under the earlier
-- name, or that it leads away from. So is a version from 2 on, unless an earlier one has rows or is succeeded by it: see
-- begin_version.sql. The earlier names of new projections are retired. The caller holds the structural lock of the tenants.
-- Indexes: projections_tenant_name_partition_key, tenants_pkey, retired_projections_pkey, or scans of small tables. Locks:
-- the new rows only.
with missing as (
    select r.*, t.paused, gen_random_uuid() as token
      from unnest($1::text[], $2::text[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::text[], $8::integer[],
                  $9::text[], $10::bigint[], $11::integer[])
           as r(tenant, name, partition, partitions, slot_from, slot_to, base, version, renamed_from, checkpoint, tenant_id)
     cross join lateral (select t.paused from {control}.tenants t
                          where t.tenant = r.tenant and t.state = 'active' and (r.tenant_id = 0 or t.id = r.tenant_id) offset 0) t
     where not exists (select from {control}.projections p where p.tenant = r.tenant and p.name = r.name offset 0)
       and not exists (select from {control}.retired_projections x where x.tenant = r.tenant and x.name = r.name offset 0)
       and (r.version = 1
            or exists (select from {control}.projections p
                        where p.tenant = r.tenant
                          and p.name = any(array(select case v when 1 then r.base else r.base || '@' || v end from generate_series(1, r.version - 1) v)))
            or exists (select from {control}.retired_projections x where x.tenant = r.tenant and x.successor = r.name))
       and not {earlier}
       and not exists (select from {control}.retired_projections y where {elsewhere} offset 0)
), inserted as (
    insert into {control}.projections (tenant, name, partition, partitions, slot_from, slot_to, token, tenant_suspended)
    select m.tenant, m.name, m.partition, m.partitions, m.slot_from, m.slot_to, first_value(m.token) over (partition by m.tenant, m.name), m.paused
      from missing m
    returning id, tenant, name, partition, tenant_suspended
), retired as (
    insert into {control}.retired_projections (tenant, name, successor, reason)
    select distinct on (m.tenant, e.name) m.tenant, e.name, m.name, 'renamed'
      from missing m cross join lateral (values (m.renamed_from), (m.renamed_from || substring(m.name from '@[0-9]+$'))) as e (name)
     where m.renamed_from <> '' and e.name is not null
     order by m.tenant, e.name, m.name
        on conflict do nothing
)
insert into {control}.leases (id, asleep, checkpoint)
select max(b.id), bool_or(b.tenant_suspended), max(b.checkpoint)
  from (select i.tenant, i.name, i.partition, i.id, i.tenant_suspended, null::bigint as checkpoint from inserted i
         union all
        select m.tenant collate "C", m.name collate "C", m.partition, null, null, m.checkpoint from missing m) b
 group by b.tenant, b.name, b.partition

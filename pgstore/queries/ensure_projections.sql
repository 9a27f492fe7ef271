-- Inserts the rows and leases of projections that have none. $1 to $6 are arrays, with one element for each row:
-- tenants, names, partitions, numbers of partitions, first slots, and the slots after the last ones. All rows of a
-- projection get one token. Tenants that do not exist or are not active are left out. The caller holds the structural
-- lock of the tenants. Indexes: projections_tenant_name_partition_key, tenants_pkey, or scans where those are cheaper.
-- Locks: the new rows only.
with missing as (
    select r.*, t.paused
      from unnest($1::text[], $2::text[], $3::integer[], $4::integer[], $5::integer[], $6::integer[])
           as r(tenant, name, partition, partitions, slot_from, slot_to)
      join {control}.tenants t on t.tenant = r.tenant and t.state = 'active'
     where not exists (select from {control}.projections p where p.tenant = r.tenant and p.name = r.name)
), tokens as materialized (
    select m.tenant, m.name, gen_random_uuid() as token from (select distinct tenant, name from missing) m
), inserted as (
    insert into {control}.projections (tenant, name, partition, partitions, slot_from, slot_to, token, suspended)
    select m.tenant, m.name, m.partition, m.partitions, m.slot_from, m.slot_to, k.token, m.paused
      from missing m join tokens k on k.tenant = m.tenant and k.name = m.name
    returning id, suspended
)
insert into {control}.leases (id, asleep) select id, suspended from inserted

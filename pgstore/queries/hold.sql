-- Makes the projections $4 of an open operation stand still, as far as no other operation holds them, and notifies the
-- nodes over channel $3. $1 operation, $2 its epoch. It returns whether all of them are held. The caller holds the structural
-- lock of the tenant. Indexes: operations_pkey, projections_tenant_name_partition_key. Locks: the rows of projections FOR
-- NO KEY UPDATE until the commit, and the queue of notifications during the commit.
with o as (
    select id, tenant, holds from {control}.operations where id = $1::bigint and epoch = $2::bigint and ended_at is null
), p as materialized (
    select p.id, p.held_by from o join {control}.projections p on p.tenant = o.tenant and p.name = any(o.holds) and p.name = any($4::text[])
), others as materialized (
    select count(*) as n from p where p.held_by <> $1::bigint
), held as (
    update {control}.projections x set held_by = $1::bigint
      from p where x.id = p.id and p.held_by is null and (select n from others) = 0
    returning x.id
), notified as (
    select count(pg_notify($3::text, held.id::text)) as n from held
)
select (select n from others) = 0, notified.n from o cross join notified

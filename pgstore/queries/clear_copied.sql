-- Deletes the projections of tenant $1, which is suspended, all that belongs to them, the retired names and the aliases. Indexes:
-- projections_tenant_name_partition_key, retired_projections_pkey, aliases_pkey, and of each other table the one by projection.
-- Locks: the rows.
with p as (
    select id from {control}.projections where tenant = $1::text
), commands as (
    delete from {control}.commands where projection_id in (select id from p)
), letters as (
    delete from {control}.dead_letters where projection_id in (select id from p)
), streams as (
    delete from {control}.parked_streams where projection_id in (select id from p)
), aliases as (
    delete from {control}.aliases where tenant = $1::text
), retired as (
    delete from {control}.retired_projections where tenant = $1::text
)
delete from {control}.projections where id in (select id from p)

-- Deletes a tenant with its projections and all that belongs to them, and notifies the nodes over channel $2. $1
-- tenant, which is locked. A command that is inserted meanwhile makes it fail with a violation of a foreign key.
-- Tables that refer to tenants with "on delete cascade" lose its rows. Indexes: projections_tenant_name_partition_key, and of each other table the one by projection. Locks: the deleted
-- rows, and the queue of notifications during the commit.
with p as (
    select id from {control}.projections where tenant = $1::text
), commands as (
    delete from {control}.commands where projection_id in (select id from p)
), letters as (
    delete from {control}.dead_letters where projection_id in (select id from p)
), streams as (
    delete from {control}.parked_streams where projection_id in (select id from p)
), projections as (
    delete from {control}.projections where id in (select id from p)
), t as (
    delete from {control}.tenants where tenant = $1::text returning tenant
)
select pg_notify($2::text, 'tenant ' || tenant) from t

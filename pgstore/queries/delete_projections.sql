-- Deletes the projections $1, their leases, and all that belongs to them. Their owners cannot commit any more. A command or
-- dead letter that is inserted meanwhile makes it fail with a violation of a foreign key. Indexes: projections_pkey, and of
-- each other table the one by projection. Locks: the rows, of which the caller has locked those of projections and leases.
with commands as (
    delete from {control}.commands where projection_id = any($1::integer[])
), letters as (
    delete from {control}.dead_letters where projection_id = any($1::integer[])
), streams as (
    delete from {control}.parked_streams where projection_id = any($1::integer[])
)
delete from {control}.projections where id = any($1::integer[])

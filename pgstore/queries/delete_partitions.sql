-- Deletes the partitions $1, to which nothing refers any more, with their leases, and notifies the nodes over channel
-- $2 that tenant $3 changed. From then on their owners cannot commit. Index: projections_pkey. Locks: the rows, which
-- the caller has locked, and the queue of notifications during the commit.
with deleted as (
    delete from {control}.projections where id = any($1::integer[])
)
select pg_notify($2::text, 'tenant ' || $3::text)

-- Sets the checkpoints of the partitions $1, which the caller has locked, to $2, and takes the leases away. The new epoch
-- $5 is higher than all of theirs: no owner can commit any more. Channel $3 notifies the nodes that tenant $4 changed. Index: leases_pkey. Locks: the rows FOR NO KEY
-- UPDATE until the commit, and the queue of notifications during the commit.
with reset as (
    update {control}.leases
       set checkpoint = $2::bigint, epoch = $5::bigint, crash_count = 0, owner = null,
           free_since = case when owner is null then free_since else clock_timestamp() end
     where id = any($1::integer[])
    returning id
)
select pg_notify($3::text, 'tenant ' || $4::text) where exists (select from reset)

-- Discards the dead letters of a command of a projection that no living node holds: it raises the epoch of the lease, so
-- that nobody who believes to hold it can commit. Indexes: leases_pkey, nodes_pkey, and those of the function. Locks, until the
-- commit: the row of leases FOR NO KEY UPDATE, and those of the function.
with free as (
    select l.id from {control}.leases l
     where l.id = $1::integer
       and (l.owner is null or not exists (select from {control}.nodes n where n.id = l.owner and n.expires_at > clock_timestamp()))
       for no key update of l
), taken as (
    update {control}.leases l set epoch = l.epoch + 1 from free where l.id = free.id
    returning l.id
)
select {control}.discard(taken.id, $2::bigint) from taken

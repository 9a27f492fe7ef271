-- Discards the dead letters of a command, under the fence. $1 lease, $2 owner, $3 epoch, $4 command. Indexes:
-- leases_pkey, and those of the function. Locks, until the commit: the row of leases FOR SHARE, and those of the
-- function.
with held as (
    select l.id from {control}.leases l where l.id = $1::integer and l.owner = $2::uuid and l.epoch = $3::bigint for share
)
select {control}.discard(held.id, $4::bigint) from held

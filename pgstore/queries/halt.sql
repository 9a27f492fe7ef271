-- Stops a projection until it is resumed, under the fence. $1 lease, $2 owner, $3 epoch, $4 reason. The row lock
-- makes this wait for a claim in progress, and makes a later claim skip the lease: otherwise the next owner might
-- have read the projection before it stopped. Indexes: leases_pkey, projections_pkey. Locks, until the commit: the
-- row of leases FOR SHARE, that of projections FOR NO KEY UPDATE.
with held as (
    select l.id from {control}.leases l where l.id = $1::integer and l.owner = $2::uuid and l.epoch = $3::bigint for share
)
update {control}.projections p set failed_reason = $4::text, halted = true from held where p.id = held.id

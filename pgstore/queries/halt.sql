-- Stops a projection until somebody resumes it, under the fence. A claim under way is waited for, and one that comes
-- meanwhile passes this lease over: else the next owner might have read before what it has to know. Indexes: leases_pkey,
-- projections_pkey. Locks, until the commit: the row of leases FOR SHARE, that of projections FOR NO KEY UPDATE.
with held as (
    select l.id from {control}.leases l where l.id = $1::integer and l.owner = $2::uuid and l.epoch = $3::bigint for share
)
update {control}.projections p set failed = $4::text, halted = true from held where p.id = held.id

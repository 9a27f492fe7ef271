-- Records why a projection waits, or null if it no longer does, under the fence. A halted projection is not changed.
-- $1 lease, $2 owner, $3 epoch, $4 reason. Indexes: leases_pkey, projections_pkey. Locks: the row of projections FOR
-- NO KEY UPDATE until the commit; leases is only read.
update {control}.projections p set failed_reason = case when halted then failed_reason else $4::text end, failed_epoch = $3::bigint
 where p.id = $1::integer
   and exists (select from {control}.leases l where l.id = p.id and l.owner = $2::uuid and l.epoch = $3::bigint)

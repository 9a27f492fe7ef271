-- Keeps why a projection waits for somebody, or that it does not any more (null), under the fence. One that is halted
-- stays as it is. Indexes: leases_pkey, projections_pkey. Locks: the row of projections FOR NO KEY UPDATE until the commit;
-- leases is only read.
update {control}.projections p set failed = case when halted then failed else $4::text end, failed_epoch = $3::bigint
 where p.id = $1::integer
   and exists (select from {control}.leases l where l.id = p.id and l.owner = $2::uuid and l.epoch = $3::bigint)

-- Counts an attempt at an event before it is made, under the fence, because the process may crash during it. $1
-- lease, $2 owner, $3 epoch, $4 position, $5 attempts. Indexes: leases_pkey, projections_pkey. Locks: the row of
-- projections FOR NO KEY UPDATE until the commit; leases is only read.
update {control}.projections p
   set crash_since = case when crash_position = $4::bigint and crash_attempts > 0 then crash_since else clock_timestamp() end,
       crash_position = $4::bigint, crash_attempts = $5::integer
 where p.id = $1::integer
   and exists (select from {control}.leases l where l.id = p.id and l.owner = $2::uuid and l.epoch = $3::bigint)

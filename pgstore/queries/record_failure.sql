-- Records the number of failed attempts at an event, under the fence, and returns when the first of them was. It
-- clears crash_attempts, since the process is alive. $1 lease, $2 owner, $3 epoch, $4 position, $5 attempts (0: only
-- record why the projection waits), $6 error, $7 whether a database object is missing. Indexes: leases_pkey,
-- projections_pkey. Locks: the row of projections FOR NO KEY UPDATE until the commit; leases is only read. $8 seconds
-- until the next attempt, null if that is not known.
update {control}.projections p
   set failing_since = case when failing_position = $4::bigint and attempts > 0 then failing_since else clock_timestamp() end,
       failing_position = $4::bigint, attempts = $5::integer, last_error = $6::text, last_error_at = clock_timestamp(),
       next_attempt_at = clock_timestamp() + make_interval(secs => $8::float8), missing_object = $7::boolean, crash_attempts = 0
 where p.id = $1::integer
   and exists (select from {control}.leases l where l.id = p.id and l.owner = $2::uuid and l.epoch = $3::bigint)
returning failing_since

-- Records for projection $1 the number of failed attempts at an event, and returns when the first of them was. It clears
-- crash_attempts, since the process is alive. $2 position, $3 attempts (0: only record why the projection waits), $4 error, $5 whether
-- a database object is missing, $6 the time until the next attempt, null if that is not known. Index: projections_pkey. Locks: the row
-- FOR NO KEY UPDATE until the commit.
update {control}.projections
   set failing_since = case when failing_position = $2::bigint and attempts > 0 then failing_since else {now} end,
       failing_position = $2::bigint, attempts = $3::integer, last_error = $4::text, last_error_at = {now},
       next_attempt_at = {now} + $6::interval, missing_object = $5::boolean, crash_attempts = 0
 where id = $1::integer
returning failing_since

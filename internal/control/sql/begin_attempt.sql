-- Counts an attempt of projection $1 at an event before it is made, because the process may crash during it. $2 position, $3
-- attempts. Index: projections_pkey. Locks: the row FOR NO KEY UPDATE until the commit.
update {control}.projections
   set crash_since = case when crash_position = $2::bigint and crash_attempts > 0 then crash_since else {now} end,
       crash_position = $2::bigint, crash_attempts = $3::integer
 where id = $1::integer

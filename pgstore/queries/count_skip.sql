-- Counts a skipped event of projection $1, and clears its failures. Index: projections_pkey. Locks: the row of
-- projections FOR NO KEY UPDATE until the commit.
update {control}.projections set skipped = skipped + 1, failing_position = 0, attempts = 0, failing_since = null, crash_attempts = 0
 where id = $1::integer

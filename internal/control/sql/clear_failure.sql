-- Clears the failures of the event at which projection $1 was. Index: projections_pkey. Locks: the row FOR NO KEY UPDATE until the
-- commit.
update {control}.projections set failing_position = 0, attempts = 0, failing_since = null, crash_attempts = 0 where id = $1::integer

-- Counts a skipped event of projection $1. Index: projections_pkey. Locks: the row FOR NO KEY UPDATE until the commit.
update {control}.projections set skipped = skipped + 1 where id = $1::integer

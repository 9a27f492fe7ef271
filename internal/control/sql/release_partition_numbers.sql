-- Renumbers the partitions $1, which are about to be deleted, so that others can have their numbers. Locks: the rows of
-- projections, which the caller has locked. Index: projections_pkey.
update {control}.projections set partition = -1 - partition where id {in $1::integer[]}

-- Deletes the partitions $1, to which nothing refers any more. Index: projections_pkey. Locks: the rows, which the caller has locked.
delete from {control}.projections where id {in $1::integer[]}

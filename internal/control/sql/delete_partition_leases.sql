-- Deletes the leases of the partitions $1. From then on their owners cannot commit. Index: leases_pkey. Locks: the rows, which the
-- caller has locked.
delete from {control}.leases where id {in $1::integer[]}

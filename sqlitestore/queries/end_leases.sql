-- Notes for the leases that the node ?1 still holds since when they have no living owner, ?2. Index: leases by owner.
-- Locks: the file has one writer.
update millrace_leases set free_since = ?2 where owner = ?1

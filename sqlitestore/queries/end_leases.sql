-- Records ?2 as the time since which the leases of the node ?1 have no living owner. Index: leases by owner. Locks: the
-- file has one writer.
update millrace_leases set free_since = ?2 where owner = ?1

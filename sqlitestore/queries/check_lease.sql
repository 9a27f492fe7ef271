-- The fence. Returns the checkpoint of a lease if it is held by owner ?2 under epoch ?3. ?1 lease. Locks nothing. Index:
-- the primary key of millrace_leases.
select checkpoint from millrace_leases where id = ?1 and owner = ?2 and epoch = ?3

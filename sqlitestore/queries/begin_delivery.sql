-- Reports whether a lease is still held at the expected checkpoint, and returns the token of its projection. ?1 lease,
-- ?2 owner, ?3 epoch, ?4 checkpoint. Indexes: the primary keys of leases and projections. Locks nothing.
select exists (select 1 from millrace_leases where id = ?1 and owner = ?2 and epoch = ?3 and checkpoint = ?4),
       coalesce((select token from millrace_projections where id = ?1), '')
